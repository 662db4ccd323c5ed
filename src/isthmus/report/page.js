"use strict";

(() => {
  const { figures, darkTones } = JSON.parse(document.getElementById("figures").textContent);
  const dark = window.matchMedia("(prefers-color-scheme: dark)");
  const narrow = window.matchMedia("(max-width: 34rem)");
  const chosen = {}; // figure -> the view it shows
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
    const views = (layout.meta && layout.meta.views) || [];
    const view = views.find((each) => each.name === chosen[name]) || views[0];
    for (const trace of data) {
      const meta = trace.meta || {};
      const inView = !view || meta.view === undefined || meta.view === view.name;
      trace.visible = inView && !(hidden[name] && hidden[name].has(meta.run));
    }
    if (view) layout.yaxis.title.text = view.axis;
    if (view && view.range) layout.yaxis.range = view.range;
    if (narrow.matches) layout.font.size = 11;
    const place = document.getElementById(name);
    Plotly.react(place, data, layout, { ...settings, displayModeBar: !narrow.matches });
  }

  function drawAll() {
    Object.keys(figures).forEach(draw);
  }

  function namesOf(control) {
    return control.dataset.figures.split(" ");
  }

  document.querySelectorAll("input[data-figures]").forEach((input) => {
    // A browser that reloads the page may keep what was checked before.
    if (input.checked) namesOf(input).forEach((name) => (chosen[name] = input.value));
    input.addEventListener("change", () => {
      for (const name of namesOf(input)) {
        chosen[name] = input.value;
        draw(name);
      }
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
      figures[panel.id].data[0].customdata.findIndex((entry) => entry[0] === client);
    for (const panel of panels) {
      const others = panels.filter((other) => other !== panel);
      panel.on("plotly_hover", (event) => {
        const client = event.points[0].customdata[0];
        for (const other of others) {
          Plotly.restyle(other, { selectedpoints: [[find(other, client)]] }, [0]);
        }
      });
      panel.on("plotly_unhover", () => {
        for (const other of others) Plotly.restyle(other, { selectedpoints: [null] }, [0]);
      });
    }
  }

  drawAll();
  joinPanels();
  dark.addEventListener("change", drawAll);
  narrow.addEventListener("change", drawAll);
})();
