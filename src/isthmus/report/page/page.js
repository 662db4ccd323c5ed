"use strict";

(() => {
  const { figures, darkTones } = JSON.parse(document.getElementById("figures").textContent);
  const dark = window.matchMedia("(prefers-color-scheme: dark)");
  const narrow = window.matchMedia("(max-width: 34rem)");
  // What a figure may be switched between -> the word for it in a trace's meta.
  const switches = { views: "view", axes: "axis", models: "model", seeds: "seed" };
  const chosen = {}; // figure -> switch -> the name of what it shows
  const hidden = {}; // figure -> the runs left out of it
  const settings = {
    responsive: true,
    displaylogo: false,
    modeBarButtons: [["toImage"]],
    toImageButtonOptions: { format: "svg" },
  };

  function toned(value) {
    if (typeof value === "string") return dark.matches ? darkTones[value] || value : value;
    if (Array.isArray(value)) return value.map(toned);
    if (value === null || typeof value !== "object") return value;
    return Object.fromEntries(Object.entries(value).map(([key, part]) => [key, toned(part)]));
  }

  function draw(name) {
    const { data, layout } = toned(figures[name]);
    const shown = {};
    for (const [list, word] of Object.entries(switches)) {
      const options = (layout.meta && layout.meta[list]) || [];
      const wanted = (chosen[name] || {})[list];
      if (options.length) shown[word] = options.find((one) => one.name === wanted) || options[0];
    }
    const traces = data.filter(({ meta = {} }) => {
      const off = (word) => meta[word] !== undefined && meta[word] !== shown[word].name;
      return !Object.keys(shown).some(off) && !(hidden[name] && hidden[name].has(meta.run));
    });
    for (const trace of traces) trace.visible = true;
    if (shown.view) {
      layout.yaxis.title.text = shown.view.axis;
      if (shown.view.type === "log") Object.assign(layout.yaxis, { type: "log", dtick: "D2" });
      if (shown.view.range) layout.yaxis.range = shown.view.range;
    }
    if (shown.axis) layout.xaxis.title.text = shown.axis.axis;
    if (narrow.matches) layout.font.size = 11;
    const place = document.getElementById(name);
    if (place.closest("[hidden]")) return; // drawn when it is shown
    Plotly.react(place, traces, layout, { ...settings, displayModeBar: !narrow.matches });
  }

  function drawAll() {
    Object.keys(figures).forEach(draw);
  }

  function namesOf(control) {
    return control.dataset.figures.split(" ").filter(Boolean);
  }

  function choose(control) {
    for (const name of namesOf(control)) {
      chosen[name] = { ...chosen[name], [control.dataset.switch]: control.value };
    }
    if (control.dataset.switch === "seeds") {
      for (const part of control.closest("section").querySelectorAll("[data-seed]")) {
        part.hidden = part.dataset.seed !== control.value;
      }
    }
  }

  document.querySelectorAll("[data-switch]").forEach((control) => {
    // A browser that reloads the page may keep what was chosen before.
    if (control.type !== "radio" || control.checked) choose(control);
    control.addEventListener("change", () => {
      choose(control);
      namesOf(control).forEach(draw);
    });
  });

  document.querySelectorAll("button[data-figures]").forEach((button) => {
    button.addEventListener("click", () => {
      const shown = button.getAttribute("aria-pressed") === "false";
      button.setAttribute("aria-pressed", String(shown));
      for (const name of namesOf(button)) {
        hidden[name] = hidden[name] || new Set();
        hidden[name][shown ? "delete" : "add"](Number(button.dataset.run));
        draw(name);
      }
    });
  });

  // Pointing at a client in one panel of gains finds the same client in the others.
  function joinPanels() {
    const panels = [...document.querySelectorAll("[data-joined]")];
    const find = (panel, client) =>
      panel.data[0].customdata.findIndex((entry) => entry[0] === client);
    for (const panel of panels) {
      const others = panels.filter((other) => other !== panel);
      panel.on("plotly_hover", (event) => {
        const client = event.points[0].customdata[0];
        for (const other of others.filter(({ data }) => data.length)) {
          Plotly.restyle(other, { selectedpoints: [[find(other, client)]] }, [0]);
        }
      });
      panel.on("plotly_unhover", () => {
        for (const other of others.filter(({ data }) => data.length)) {
          Plotly.restyle(other, { selectedpoints: [null] }, [0]);
        }
      });
    }
  }

  drawAll();
  joinPanels();
  window.isthmus = { figures, draw };
  dark.addEventListener("change", drawAll);
  narrow.addEventListener("change", drawAll);
})();
