// What a page without a script shows already is made handier: tips, zoom, sorting, filters, a theme.
"use strict";
(() => {
  const root = document.documentElement, svg = "http://www.w3.org/2000/svg";
  const all = (selector, inside) => Array.from((inside || document).querySelectorAll(selector));
  root.classList.add("js");

  // Theme: the system's until the button is used.
  const button = document.getElementById("theme");
  const dark = () => root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  const name = () => { button.textContent = dark() ? "Light" : "Dark"; button.setAttribute("aria-label", dark() ? "Use the light theme" : "Use the dark theme"); };
  button.removeAttribute("aria-pressed");
  button.addEventListener("click", () => { root.dataset.theme = dark() ? "light" : "dark"; name(); });
  name();

  // Tips: the text of a mark's <title>, shown at once, by mouse or by the arrow keys.
  const tip = document.getElementById("tip");
  all(".stage title, .scroll svg title").forEach((one) => { one.parentNode.dataset.tip = one.textContent; one.remove(); });
  let marked = null;
  const hide = () => { tip.hidden = true; if (marked) marked.classList.remove("now"); marked = null; };
  const show = (mark) => {
    if (marked === mark) return;
    hide();
    marked = mark;
    mark.classList.add("now");
    tip.textContent = mark.dataset.tip;
    tip.hidden = false;
    const at = mark.getBoundingClientRect(), own = tip.getBoundingClientRect(), wide = root.clientWidth;
    const left = Math.min(Math.max(at.left + at.width / 2 - own.width / 2, 8), wide - own.width - 8);
    const top = at.top - own.height - 8 < 4 ? at.bottom + 8 : at.top - own.height - 8;
    tip.style.left = left + scrollX + "px";
    tip.style.top = top + scrollY + "px";
  };
  const nearest = (stage, event) => {
    const row = event.target.closest("tr"), place = row || stage;
    let best = null, least = 40;
    for (const mark of all("[data-tip]", place)) {
      const at = mark.getBoundingClientRect();
      if (!at.width || at.right < 0) continue;
      const dx = Math.max(at.left - event.clientX, 0, event.clientX - at.right), dy = Math.max(at.top - event.clientY, 0, event.clientY - at.bottom);
      const far = Math.hypot(dx, dy);
      if (far < least) { least = far; best = mark; }
    }
    return best;
  };
  document.addEventListener("keydown", (event) => { if (event.key === "Escape") hide(); });

  // Zoom: every mark carries its value; the view is a range of values.
  const plots = all("figure.plot").map((figure) => new Plot(figure));
  function Plot(figure) {
    const data = figure.dataset, stage = figure.querySelector(".stage");
    const first = [Number(data.low), Number(data.high)], log = data.log === "1";
    let base = first, view = first, scaled = false;
    const marks = all("[data-v]", stage).map((mark) => ({
      mark, values: mark.dataset.v.split(" ").map(Number), kind: mark.tagName,
      unit: Number((mark.closest("[data-unit]") || { dataset: {} }).dataset.unit || 1),
    }));
    const boxes = all(".stretch", stage), axes = all(".ticks", stage);
    const bars = marks.filter((one) => one.mark.matches("line.whole, line.prior")), texts = all("[data-scaled-text]", stage), dots = all("[data-scaled-tip]", stage);
    texts.forEach((cell) => { cell.dataset.plainText = cell.textContent; });
    dots.forEach((mark) => { mark.dataset.plainTip = mark.dataset.tip; });
    const percent = (value) => Math.min(Math.max((value - view[0]) / (view[1] - view[0]), -50), 50) * 100 + "%";
    const words = (value) => {
      const shown = log ? Math.pow(10, value) : value;
      let text = Math.abs(shown) >= 1e6 || (shown !== 0 && Math.abs(shown) < 1e-4) ? shown.toExponential(3) : String(Number(shown.toPrecision(5)));
      return text.replace(/\.?0*e\+?/, "e").replace(/-/g, "−");
    };
    const draw = () => {
      for (const one of marks) {
        const at = one.values.map((value) => percent(scaled ? value * one.unit : value));
        if (one.kind === "circle") one.mark.setAttribute("cx", at[0]);
        else if (one.kind === "rect") { one.mark.setAttribute("x", at[0]); one.mark.setAttribute("width", Math.max(parseFloat(at[1]) - parseFloat(at[0]), 0) + "%"); }
        else { one.mark.setAttribute("x1", at[0]); one.mark.setAttribute("x2", at[at.length - 1]); }
      }
      const wide = first[1] - first[0];
      for (const box of boxes) box.setAttribute("viewBox", `${(view[0] - first[0]) / wide * 1000} 0 ${(view[1] - view[0]) / wide * 1000} 1000`);
      axes.forEach(ticks);
      all(".beyond", stage).forEach((arrow) => arrow.remove());
      bars.forEach(arrows);
      stage.classList.toggle("zoomed", view !== base);
      hide();
    };
    // A bar that goes on beyond an edge has an arrow there.
    const arrows = (bar) => {
      const at = bar.values.map((value) => scaled ? value * bar.unit : value), prior = bar.mark.classList.contains("prior");
      const kind = prior ? "of-prior" : Array.from(bar.mark.classList).find((one) => /^run/.test(one)) || "run0";
      const dot = bar.mark.parentNode.querySelector("circle" + (prior ? "" : "." + kind)), y = Number(bar.mark.getAttribute("y1")) + (prior ? -2 : 5);
      const put = (text, x, anchor) => { const made = add(bar.mark.parentNode, "text", { class: "beyond " + kind, x, y, "text-anchor": anchor }); made.textContent = text; if (dot) made.dataset.tip = dot.dataset.tip; };
      if (Math.min(...at) < view[0]) put("◂", "0%", "start");
      if (Math.max(...at) > view[1]) put("▸", "100%", "end");
    };
    const ticks = (axis) => {
      const step = (() => {
        const rough = (view[1] - view[0]) / 5, power = Math.pow(10, Math.floor(Math.log10(rough)));
        const nice = [1, 2, 5, 10].map((size) => size * power).find((size) => size >= rough * (1 - 1e-9));
        return log ? Math.max(1, Math.round(nice)) : nice;
      })();
      axis.replaceChildren();
      for (let i = Math.ceil(view[0] / step - 1e-9); i * step <= view[1] + 1e-9 * step; i += 1) {
        const at = percent(i * step), share = parseFloat(at), height = Number(axis.dataset.height);
        if (axis.dataset.lines === "1") add(axis, "line", { class: "grid", x1: at, x2: at, y1: 0, y2: height });
        add(axis, "text", { class: "tick", x: at, y: height + 18, "text-anchor": share > 97 ? "end" : "middle" }).textContent = words(i * step);
      }
    };
    const add = (parent, kind, attributes) => {
      const made = document.createElementNS(svg, kind);
      for (const key of Object.keys(attributes)) made.setAttribute(key, attributes[key]);
      return parent.appendChild(made);
    };
    const reset = () => { view = base; draw(); };
    const centred = () => { const zero = -view[0] / (view[1] - view[0]); return stage.querySelector(".zero") && zero > 0 && zero < 1 ? zero : 0.5; };
    const zoom = (factor, middle = centred()) => {
      const wide = view[1] - view[0], next = wide * factor, whole = base[1] - base[0];
      if (next > 16 * whole || next < whole / 5000) return;
      const centre = view[0] + middle * wide;
      view = [centre - middle * next, centre + (1 - middle) * next];
      draw();
    };
    const move = (share) => { const by = share * (view[1] - view[0]); view = [view[0] + by, view[1] + by]; draw(); };
    const rebase = () => {
      const prior = figure.querySelector('[data-show="prior"]'), wanted = prior && prior.checked;
      const box = figure.querySelector("[data-scaled]");
      scaled = Boolean(box && box.checked);
      const range = (low, high) => low ? [Number(low), Number(high)] : first;
      base = scaled && wanted && data.bothLow ? range(data.bothLow, data.bothHigh) : scaled ? range(data.scaledLow, data.scaledHigh) : wanted ? range(data.priorLow, data.priorHigh) : first;
      texts.forEach((cell) => { cell.textContent = scaled ? cell.dataset.scaledText : cell.dataset.plainText; });
      dots.forEach((mark) => { mark.dataset.tip = scaled ? mark.dataset.scaledTip : mark.dataset.plainTip; });
      const caption = figure.querySelector(".axis-words");
      if (box && caption) caption.textContent = scaled ? "times the reach of the column's bounds, numbers and tips too; rows without such a column as they are" : "in the units of the table";
      reset();
    };

    all("[data-show]", figure).forEach((box) => {
      const set = () => { figure.classList.toggle("hide-" + box.dataset.show, !box.checked); };
      box.addEventListener("change", () => { set(); rebase(); });
      set();
    });
    all("[data-scaled]", figure).forEach((box) => box.addEventListener("change", rebase));
    all("[data-zoom]", figure).forEach((one) => one.addEventListener("click", () => {
      if (one.dataset.zoom === "reset") reset(); else zoom(one.dataset.zoom === "in" ? 0.5 : 2);
    }));

    // By keyboard: arrows go from mark to mark, with Shift they move the view; + and - zoom, 0 resets.
    stage.tabIndex = 0;
    stage.setAttribute("role", "group");
    stage.setAttribute("aria-label", stage.dataset.name + ". Arrow keys go from mark to mark; plus and minus zoom, Shift and arrows move, 0 resets.");
    stage.addEventListener("keydown", (event) => {
      const right = event.key === "ArrowRight" || event.key === "ArrowDown", left = event.key === "ArrowLeft" || event.key === "ArrowUp";
      if (event.ctrlKey || event.metaKey || event.altKey) return;
      if (right || left) {
        if (event.shiftKey) move(right ? 0.2 : -0.2);
        else {
          const shown = all("[data-tip]", stage).filter((mark) => mark.getClientRects().length);
          const now = shown.indexOf(marked);
          if (shown.length) { const next = shown[now < 0 ? (right ? 0 : shown.length - 1) : (now + (right ? 1 : -1) + shown.length) % shown.length]; next.scrollIntoView({ block: "nearest" }); show(next); }
        }
      } else if (event.key === "+" || event.key === "=") zoom(0.5);
      else if (event.key === "-") zoom(2);
      else if (event.key === "0") reset();
      else return;
      event.preventDefault();
    });
    stage.addEventListener("blur", hide);
    stage.addEventListener("pointermove", (event) => {
      if (stage.classList.contains("dragged")) return;
      const mark = nearest(stage, event);
      if (mark) show(mark); else hide();
    });
    stage.addEventListener("pointerleave", hide);

    // By mouse: Ctrl and wheel zoom where the pointer is, dragging moves what was zoomed.
    const area = () => (stage.querySelector(".area") || stage).getBoundingClientRect();
    if (data.low) stage.addEventListener("wheel", (event) => {
      if (!event.ctrlKey && !event.metaKey) return;
      event.preventDefault();
      const at = area();
      zoom(event.deltaY < 0 ? 0.8 : 1.25, Math.min(Math.max((event.clientX - at.left) / at.width, 0), 1));
    }, { passive: false });
    let from = null;
    stage.addEventListener("pointerdown", (event) => { if (view !== base && event.button === 0) { from = event.clientX; stage.classList.add("dragged"); stage.setPointerCapture(event.pointerId); } });
    stage.addEventListener("pointermove", (event) => { if (from !== null) { move((from - event.clientX) / area().width); from = event.clientX; } });
    const drop = () => { from = null; stage.classList.remove("dragged"); };
    stage.addEventListener("pointerup", drop);
    stage.addEventListener("pointercancel", drop);
  }

  // The forest: sort, filter, show all.
  all("figure[data-forest]").forEach((figure) => {
    const body = figure.querySelector("tbody"), rows = all("tr", body), limit = Number(figure.dataset.first);
    const sort = figure.querySelector("[data-sort]"), filter = figure.querySelector("[data-filter]"), more = figure.querySelector("[data-more]");
    const label = (row) => (row.querySelector(".name") || row).title || row.firstElementChild.textContent;
    const fold = () => {
      const words = filter.value.trim().toLowerCase();
      let shown = 0;
      for (const row of all("tr", body)) {
        row.hidden = words !== "" && !label(row).toLowerCase().includes(words);
        if (!row.hidden) shown += 1;
        row.classList.toggle("later", !row.hidden && shown > limit);
      }
      figure.classList.toggle("fold", Boolean(more) && more.getAttribute("aria-expanded") === "false");
    };
    const order = () => {
      const key = sort.value, box = figure.querySelector("[data-scaled]"), scaled = box && box.checked && (key === "size" || key === "width");
      const unit = (row) => { const drawn = row.querySelector("[data-unit]"); return scaled && drawn ? Number(drawn.dataset.unit) : 1; };
      const value = (row) => row.dataset[key] === "" ? -Infinity : Number(row.dataset[key]) * unit(row);
      const sorted = rows.slice().sort((a, b) => key === "name" ? label(a).localeCompare(label(b)) : key === "order" ? value(a) - value(b) : value(b) - value(a));
      body.append(...sorted);
      fold();
    };
    sort.addEventListener("change", order);
    all("[data-scaled]", figure).forEach((box) => box.addEventListener("change", order));
    filter.addEventListener("input", fold);
    if (more) {
      const words = more.textContent;
      more.addEventListener("click", () => {
        const open = more.getAttribute("aria-expanded") === "true";
        more.setAttribute("aria-expanded", String(!open));
        more.textContent = open ? words : "Show the first " + limit;
        fold();
      });
    }
    order();
  });

  // Copy, where the browser allows it; else the text is selected.
  all("[data-copy]").forEach((one) => one.addEventListener("click", () => {
    const text = document.getElementById(one.dataset.copy);
    const select = () => { const range = document.createRange(); range.selectNodeContents(text); const now = getSelection(); now.removeAllRanges(); now.addRange(range); one.textContent = "Selected"; };
    if (navigator.clipboard) navigator.clipboard.writeText(text.textContent).then(() => { one.textContent = "Copied"; }, select); else select();
  }));

  // Boxes that scroll sideways can be reached by keyboard.
  const boxes = () => all(".scroll").forEach((box) => { if (box.scrollWidth > box.clientWidth + 1) { box.tabIndex = 0; box.setAttribute("role", "region"); box.setAttribute("aria-label", (box.querySelector("caption") || box).textContent); } else { box.removeAttribute("tabindex"); box.removeAttribute("role"); box.removeAttribute("aria-label"); } });
  boxes();
  addEventListener("resize", boxes);
  all("details").forEach((one) => one.addEventListener("toggle", boxes));

  // On paper everything is open.
  let closed = [];
  addEventListener("beforeprint", () => { closed = all("details:not([open])"); closed.forEach((one) => { one.open = true; }); });
  addEventListener("afterprint", () => { closed.forEach((one) => { one.open = false; }); });
})();
