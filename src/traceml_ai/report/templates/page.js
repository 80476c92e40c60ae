"use strict";
(function () {
  const root = document.documentElement;
  const button = document.getElementById("theme");
  const dark = window.matchMedia("(prefers-color-scheme: dark)");
  const isDark = () => (root.dataset.theme ? root.dataset.theme === "dark" : dark.matches);
  const label = () => { button.textContent = isDark() ? "Light" : "Dark"; };
  button.hidden = false;
  button.addEventListener("click", () => { root.dataset.theme = isDark() ? "light" : "dark"; label(); });
  dark.addEventListener("change", label);
  label();
  const items = JSON.parse(document.getElementById("charts").textContent);
  const draw = (item) => Bokeh.embed.embed_item(item).catch(() => 0).then((view) => {
    if (view === 0) {
      document.getElementById(item.target_id).textContent = "This chart could not be drawn here; the table has its facts.";
    }
    return view;
  });
  Promise.all(items.map(draw)).then((views) => { root.dataset.drawn = String(views.filter((view) => view !== 0).length); });
})();
