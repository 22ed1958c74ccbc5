// What pages do beside htmx: a key that focuses the question, forms that apply on change, times of
// the browser's zone, sources shown where they are cited.
"use strict";

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.target.closest("input, textarea, select, [contenteditable]")) return;
  const wanted = [...document.querySelectorAll("[data-focus-key]")].find(
    (element) => element.dataset.focusKey === event.key,
  );
  if (wanted) {
    event.preventDefault();
    wanted.focus();
    wanted.select?.();
  } else if (event.key === "/") {
    event.preventDefault();
    location.href = document.querySelector(".brand").href;
  }
});

document.addEventListener("change", (event) => {
  event.target.closest("form[data-submit-on-change]")?.requestSubmit();
});

document.addEventListener("htmx:load", ({ detail: { elt } }) => {
  for (const time of elt.querySelectorAll('time[datetime*="T"]')) {
    const local = new Date(time.dateTime).toLocaleString("sv"); // 2026-11-29 18:05:00
    time.textContent = local.slice(0, time.textContent.length);
  }
  for (const note of elt.querySelectorAll("[data-zone]")) {
    const zone = Intl.DateTimeFormat().resolvedOptions().timeZone;
    note.textContent = note.dataset.zone.replace("{zone}", zone);
  }
  for (const box of elt.querySelectorAll(".passage")) {
    const mark = box.querySelector("mark");
    if (mark) box.scrollTop = mark.offsetTop - box.offsetTop - box.clientHeight / 3;
  }
  // whoever opened it by key goes on in it
  if (elt.matches("#panel > .source-view")) elt.parentElement.focus({ preventScroll: true });
  elt.querySelector(".source-view :is(mark, .cited)")?.scrollIntoView({ block: "nearest" });
});
