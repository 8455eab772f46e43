// One model is shown at a time: the one that the budget pays for, or the one that was touched.
(function () {
  "use strict";
  const page = document, $ = (id) => page.getElementById(id);
  const all = (what, within) => Array.from((within || page).querySelectorAll(what));
  const area = $("frontier"), slider = $("budget"), line = $("budget-line"), said = $("choice");
  const points = all("button.point"), panels = all("[data-panel]");
  page.documentElement.classList.add("js");

  // the place of a budget on the axis, 0 to 100, as the money that it stands for
  function moneyAt(place) {
    const low = +area.dataset.low, high = +area.dataset.high, gap = +area.dataset.gap;
    if (!area.dataset.log) return low + (high - low) * place / 100;
    if (place < gap) return 0;
    return low * Math.pow(high / low, (place - gap) / (100 - gap));
  }

  function written(money) {
    const digits = money >= 1000 ? 0 : money >= 100 ? 1 : money >= 0.1 || money === 0 ? 2 : 4;
    return money.toLocaleString("en", { maximumFractionDigits: digits });
  }

  // the best model within a budget: the last one that fits, or where errors have prices, the least in all
  function within(place) {
    const fit = points.filter((point) => +point.dataset.at <= place + 1e-6);
    if (!fit.length) return points[0];
    if (area.dataset.money !== "1") return fit[fit.length - 1];
    return fit.reduce((best, point) => (+point.dataset.worth > +best.dataset.worth ? point : best));
  }

  function show(point, place) {
    const number = point.dataset.model;
    points.forEach((each) => each.setAttribute("aria-pressed", String(each === point)));
    panels.forEach((panel) => { panel.hidden = panel.dataset.panel !== number; });
    slider.value = place;
    line.style.left = place + "%";
    const budget = written(moneyAt(place));
    $("budget-value").textContent = budget;
    slider.setAttribute("aria-valuetext", budget + ", model " + number);
    const told = point.getAttribute("aria-label");
    if (said.textContent !== told) said.textContent = told;
  }

  const touch = (point) => show(point, +point.dataset.at);

  slider.addEventListener("input", () => show(within(+slider.value), +slider.value));
  points.forEach((point, at) => {
    point.addEventListener("click", () => touch(point));
    point.addEventListener("keydown", (event) => {
      const step = { ArrowRight: 1, ArrowUp: 1, ArrowLeft: -1, ArrowDown: -1 }[event.key];
      const next = step && points[at + step];
      if (next) { event.preventDefault(); next.focus(); touch(next); }
    });
  });
  page.addEventListener("keydown", (event) => {  // whoever wants to see what a text covers
    if (event.key === "Escape" && page.activeElement.closest(".point")) page.activeElement.blur();
  });

  // a link to a model shows it
  function follow() {
    const found = /^#model-(\d+)$/.exec(location.hash), point = found && points[found[1] - 1];
    if (point) {
      touch(point);
      const panel = panels[found[1] - 1];
      panel.scrollIntoView();
      panel.querySelector("h2").focus({ preventScroll: true });
    }
    return Boolean(point);
  }
  window.addEventListener("hashchange", follow);

  all(".open-all").forEach((button) => button.addEventListener("click", () => {
    const open = button.getAttribute("aria-pressed") !== "true";
    all("details", button.parentElement.nextElementSibling).forEach((node) => { node.open = open; });
    button.setAttribute("aria-pressed", String(open));
  }));

  // on paper nothing can be opened
  let closed = [];
  window.addEventListener("beforeprint", () => {
    closed = all("details:not([open])");
    closed.forEach((each) => { each.open = true; });
  });
  window.addEventListener("afterprint", () => closed.forEach((each) => { each.open = false; }));

  if (!follow()) touch(points[page.body.dataset.first - 1]);
})();
