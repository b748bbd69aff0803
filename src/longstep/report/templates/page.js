// The page is whole without this: it only tells at once, below a picture, what is pointed at, and opens all for print.
(function () {
  "use strict";
  document.querySelectorAll("figure.panel").forEach(function (panel) {
    var read = panel.querySelector(".read");
    panel.querySelectorAll(".hit").forEach(function (hit) {
      var title = hit.querySelector("title");
      if (!read || !title) { return; }
      var text = title.textContent;
      // The browser's own tip would come late, on top of the same words.
      hit.removeChild(title);
      hit.addEventListener("pointerenter", function () { read.textContent = text; });
      hit.addEventListener("click", function () { read.textContent = text; });
      hit.addEventListener("pointerleave", function () { read.textContent = "\u00a0"; });
    });
  });
  window.addEventListener("beforeprint", function () {
    document.querySelectorAll("details").forEach(function (part) { part.open = true; });
  });
}());
