// Files that are dropped on a form, and the caret that says where a chunk is split.
"use strict";

for (const zone of document.querySelectorAll("[data-drop]")) {
  const input = zone.querySelector("input[type=file]");
  for (const kind of ["dragenter", "dragover"]) {
    zone.addEventListener(kind, (event) => {
      event.preventDefault();
      zone.classList.add("over");
    });
  }
  for (const kind of ["dragleave", "drop"]) {
    zone.addEventListener(kind, () => zone.classList.remove("over"));
  }
  zone.addEventListener("drop", (event) => {
    event.preventDefault();
    input.files = event.dataTransfer.files;
  });
  // a page that Back restores as it was lacks the files that wait since
  window.addEventListener("pageshow", (event) => event.persisted && location.reload());
}

// characters, not UTF-16 units: the server counts code points
document.addEventListener("selectionchange", () => {
  const text = document.activeElement;
  const name = text?.dataset?.caret;
  if (!name) return;
  const before = [...text.value.slice(0, text.selectionStart)].length;
  const field = document.querySelector(`[data-caret-of="${CSS.escape(name)}"]`);
  if (field) field.value = before;
});
