"use strict";

(() => {
  const { figures, plot, themes } = window.isthmus;
  // What a figure may be switched between -> the word for it in what a mark is shown in.
  const switches = { views: "view", axes: "axis", models: "model", seeds: "seed" };
  const chosen = {}; // figure -> switch -> the name of what it shows
  const hidden = {}; // figure -> the runs left out of it

  function draw(name) {
    const place = document.getElementById(name);
    if (place.closest("[hidden]")) return; // drawn when it is shown
    const positions = {};
    for (const [list, word] of Object.entries(switches)) {
      const options = (figures[name].switches || {})[list] || [];
      const asked = (chosen[name] || {})[list];
      if (options.length) positions[word] = options.find((one) => one.name === asked) || options[0];
    }
    const wanted = ({ shown = {} }) => {
      const off = (word) => shown[word] !== undefined && shown[word] !== positions[word].name;
      return !Object.keys(positions).some(off) && !(hidden[name] && hidden[name].has(shown.run));
    };
    plot(place, figures[name], wanted, positions);
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
  window.isthmus.draw = draw;
  for (const theme of themes) theme.addEventListener("change", drawAll);
})();
