// What pages do beside htmx: a key that focuses the question, forms that apply on change, times of
// the browser's zone, sources shown where they are cited and closed by Back,
// and a message where the server does not answer.
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
  const form = event.target.closest("form[data-submit-on-change]");
  // an answer has changed the page's address since the form was made
  if (form?.elements.next) form.elements.next.value = location.pathname + location.search;
  const question = document.querySelector("form.question input[name=q]");
  if (form?.elements.q && question) form.elements.q.value = question.value;
  form?.requestSubmit();
});

// Back closes a source that was opened beside an answer: on a telephone it is below it
let opener;
window.addEventListener("popstate", (event) => {
  const panel = document.querySelector("#panel:not(:empty)");
  if (!panel || event.state?.source) return;
  event.stopImmediatePropagation(); // htmx would ask the question again
  panel.replaceChildren();
  opener.focus({ preventScroll: true });
});

// without this, an earlier answer would stand below a question that was never received
document.addEventListener("htmx:sendError", ({ detail: { requestConfig, pathInfo, target } }) => {
  const notice = document.querySelector("#unreachable").content.cloneNode(true);
  const again = notice.querySelector("a");
  if (requestConfig.verb === "get") again.href = pathInfo.finalRequestPath;
  else again.remove();
  target.replaceChildren(notice);
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
  // the source of another question
  if (elt.matches("#answer > .live")) document.querySelector("#panel").replaceChildren();
  // whoever opened it by key goes on in it
  if (elt.matches("#panel > .source-view")) {
    if (!elt.parentElement.contains(document.activeElement)) opener = document.activeElement;
    if (!history.state?.source) history.pushState({ htmx: true, source: true }, "");
    elt.parentElement.focus({ preventScroll: true });
  }
  elt.querySelector(".source-view :is(mark, .cited)")?.scrollIntoView({ block: "nearest" });
});

// What was typed into a form comes back after a login that had expired meanwhile.
const typed = JSON.parse(sessionStorage.getItem("typed") ?? "null");
if (typed && location.pathname === "/login") {
  sessionStorage.setItem("typed", JSON.stringify({ ...typed, lost: true }));
} else {
  sessionStorage.removeItem("typed");
  if (typed?.lost) fillAgain(typed);
  document.addEventListener("submit", ({ target }) => {
    if (target.getAttribute("method") !== "post" || target.querySelector("[type=password]")) return;
    const fields = [...new FormData(target)].filter(([, value]) => typeof value === "string");
    const action = target.getAttribute("action");
    sessionStorage.setItem("typed", JSON.stringify({ action, fields }));
  });
}

function fillAgain({ action, fields }) {
  const has = ({ name, value }) => fields.some((field) => field[0] === name && field[1] === value);
  const form = [...document.forms].find(
    (it) =>
      it.getAttribute("action") === action &&
      [...it.querySelectorAll("input[type=hidden]")].every(has),
  );
  for (const element of form?.elements ?? []) {
    const given = fields.find(([name]) => name === element.name);
    if (element.type === "checkbox") element.checked = has(element);
    else if (given && !["hidden", "submit", "file"].includes(element.type)) element.value = given[1];
  }
  const folded = form?.closest("details");
  if (folded) folded.open = true;
  form?.scrollIntoView({ block: "center" });
}
