"use strict";

// Draws figures with plotly, from values as report/figures/figure.py describes them.
window.isthmus = (() => {
  const { figures, darkTones, tones } = JSON.parse(document.getElementById("figures").textContent);
  const dark = window.matchMedia("(prefers-color-scheme: dark)");
  const narrow = window.matchMedia("(max-width: 34rem)");
  const clear = "rgba(0,0,0,0)";
  const space = 0.08; // of the height, between two panels
  const config = {
    responsive: true,
    displaylogo: false,
    modeBarButtons: [["toImage"]],
    toImageButtonOptions: { format: "svg" },
  };

  // Colours in the theme of the reader.
  function toned(value) {
    if (typeof value === "string") return dark.matches ? darkTones[value] || value : value;
    if (Array.isArray(value)) return value.map(toned);
    if (value === null || typeof value !== "object") return value;
    return Object.fromEntries(Object.entries(value).map(([key, part]) => [key, toned(part)]));
  }

  function transparent(colour) {
    const parts = [1, 3, 5].map((at) => parseInt(colour.slice(at, at + 2), 16));
    return `rgba(${parts.join(",")},0.18)`;
  }

  // Text from a file, so that plotly, whose texts know tags and templates, prints it.
  function inert(text) {
    if (typeof text !== "string") return text;
    const safe = text.replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;");
    return safe.replaceAll("%{", "%&#123;");
  }

  function scale({ deep_is_low }) {
    const ends = deep_is_low ? [tones.deep, tones.grid] : [tones.grid, tones.deep];
    return ends.map((tone, place) => [place, tone]);
  }

  // The bar that explains tones: beside the upper panel, or below the figure.
  function bar({ title, ticks, below }, { below: second, share }) {
    const upper = second ? 1 - share - space : 1;
    const place = below
      ? { orientation: "h", y: -below, yanchor: "top", len: 0.9 }
      : { len: 0.9 * upper, y: 1 - upper / 2 };
    return {
      title: { text: title, font: { size: 12 }, ...(below ? { side: "bottom" } : {}) },
      thickness: 10,
      outlinewidth: 0,
      ...place,
      ...(ticks ? { tickvals: Object.keys(ticks).map(Number), ticktext: Object.values(ticks) } : {}),
    };
  }

  // Rows become one trace: a gap after each keeps their lines apart.
  function join(rows) {
    return Array.isArray(rows[0]) ? rows.flatMap((row) => [...row, null]) : rows;
  }

  const encoders = {
    Lines({ x, y, data, style, width, size, opacity }) {
      const rows = Array.isArray(y[0]) && data;
      return {
        type: "scatter",
        mode: style.symbol ? "lines+markers" : "lines",
        x: join(x),
        y: join(y),
        ...(rows ? { customdata: data.flatMap((one, i) => Array(y[i].length + 1).fill(one)) } : {}),
        line: { color: style.colour, width, dash: (style.dash || []).map((n) => `${n}px`).join() || "solid" },
        marker: { symbol: style.symbol || "circle", size, maxdisplayed: 15 },
        opacity,
      };
    },
    Band({ x, low, high, colour }) {
      return {
        type: "scatter",
        mode: "lines",
        x: [...x, ...[...x].reverse()],
        y: [...high, ...[...low].reverse()],
        line: { width: 0 },
        fill: "toself",
        fillcolor: transparent(colour),
      };
    },
    Points({ colour, symbol, size, edge, labels, sides, bars, shade }, figure) {
      const [width, color] = edge;
      const shaded = shade ? { colorscale: scale(shade), colorbar: bar(shade, figure) } : {};
      const text = {
        mode: "markers+text",
        text: (labels || []).map(inert),
        textfont: { color: sides ? tones.ink : tones.surface, size: 11 },
        textposition: sides || "middle center",
        cliponaxis: false,
      };
      return {
        type: "scatter",
        mode: "markers",
        marker: { symbol, size, color: colour, line: { width, color }, ...shaded },
        ...(labels ? text : {}),
        ...(bars ? { error_x: { array: bars, color: tones.alone } } : {}),
      };
    },
    Bars({ colour, hatched, edge, width, across }) {
      const shape = Array.isArray(hatched) ? hatched.map((one) => (one ? "/" : "")) : hatched && "/";
      return {
        type: "bar",
        orientation: across ? "h" : "v",
        ...(width ? { width } : {}),
        marker: {
          color: colour,
          pattern: { shape: shape || "", size: 5, solidity: 0.35, fillmode: "replace" },
          line: { width: edge, color: colour },
        },
        unselected: { marker: { opacity: 0.3 } },
      };
    },
    HeatMap({ z, shade }, figure) {
      return {
        type: "heatmap",
        z,
        zmin: shade.low,
        zmax: shade.high,
        xgap: 0.5,
        ygap: 0.5,
        // Nothing is grey.
        colorscale: [[0, tones.grid], [0.001, transparent(tones.deep)], [1, tones.deep]],
        colorbar: bar(shade, figure),
      };
    },
    Field({ z, shade, surface }, figure) {
      const contours = { ncontours: 18, contours: { coloring: "fill" } };
      return {
        type: surface ? "surface" : "contour",
        z,
        colorscale: scale(shade),
        ...(surface ? { showscale: false } : { ...contours, colorbar: bar(shade, figure) }),
        ...(surface ? {} : { line: { width: 0.7, color: tones.muted } }),
      };
    },
    Stems({ z, labels }) {
      return {
        type: "scatter3d",
        mode: "lines+text",
        z,
        text: labels.map(inert),
        textfont: { color: tones.ink, size: 11, family: tones.font },
        line: { color: tones.ink, width: 2 },
      };
    },
  };

  function encodeMark(mark, figure) {
    const { x = [], y = [], name, hover, data, shown, tables, lower } = mark;
    return {
      x: x.map(inert),
      y: y.map(inert),
      name: inert(name),
      ...(hover ? { hovertemplate: `${hover}<extra></extra>` } : { hoverinfo: "skip" }),
      ...(data ? { customdata: data } : {}),
      meta: { ...shown, ...(tables ? { from: tables } : {}) },
      ...(lower ? { yaxis: "y2" } : {}),
      ...encoders[mark.kind](mark, figure),
    };
  }

  function encodeAxis({ title = "", range, ticks, names, ...axis }) {
    return {
      title: { text: title, standoff: 10 },
      gridcolor: tones.grid,
      linecolor: tones.grid,
      zerolinecolor: tones.zero,
      zeroline: axis.zero_line,
      showgrid: axis.grid,
      showticklabels: axis.labelled,
      visible: !axis.hidden,
      automargin: true,
      fixedrange: true,
      ...(range ? { range } : {}),
      ...(ticks ? { tickvals: Object.keys(ticks).map(Number), ticktext: Object.values(ticks) } : {}),
      ...(names ? { type: "category" } : {}),
      ...(axis.reversed ? { autorange: "reversed" } : {}),
      ...(axis.from_zero ? { rangemode: "tozero" } : {}),
    };
  }

  function encodeSpace(depth) {
    const axis = {
      title: { text: "distance", font: { size: 11 } },
      gridcolor: tones.grid,
      backgroundcolor: clear,
      color: tones.muted,
      tickfont: { size: 10 },
      nticks: 5,
    };
    return {
      xaxis: axis,
      yaxis: axis,
      zaxis: { ...axis, title: { text: "" }, showticklabels: false },
      aspectmode: "manual",
      aspectratio: { x: 1, y: depth, z: 0.7 },
      camera: { eye: { x: 0.9, y: -1.25, z: 1.2 } },
      dragmode: "turntable",
    };
  }

  function encodeLayout(figure) {
    const { x, y, below, share, stacked, gap, equal, depth } = figure;
    const font = { family: tones.font, size: narrow.matches ? 11 : 13 };
    const layout = {
      paper_bgcolor: clear,
      plot_bgcolor: clear,
      font: { ...font, color: tones.muted },
      margin: depth ? { l: 0, r: 0, t: 0, b: 0 } : { l: 8, r: 12, t: 12, b: 8 },
      hovermode: "closest",
      hoverlabel: {
        bgcolor: tones.surface,
        bordercolor: tones.zero,
        align: "left",
        font: { family: tones.font, size: 13, color: tones.ink },
      },
      modebar: { bgcolor: clear, color: tones.muted, activecolor: tones.ink },
      dragmode: false,
      showlegend: false,
      barmode: stacked ? "stack" : "group",
      bargap: gap,
      xaxis: { ...encodeAxis(x), ...(equal ? { constrain: "domain" } : {}) },
      yaxis: { ...encodeAxis(y), ...(equal ? { constrain: "domain", scaleanchor: "x" } : {}) },
    };
    if (below) {
      layout.xaxis.anchor = "y2";
      layout.yaxis.domain = [share + space, 1];
      layout.yaxis2 = { ...encodeAxis(below), domain: [0, share] };
    }
    if (depth) layout.scene = encodeSpace(depth);
    return layout;
  }

  // Draws the marks of a figure that are wanted; `shown` has the chosen views and axes.
  function plot(place, figure, wanted, shown) {
    const layout = encodeLayout(figure);
    if (shown.view) {
      layout.yaxis.title.text = shown.view.axis || "";
      if (shown.view.type === "log") Object.assign(layout.yaxis, { type: "log", dtick: "D2" });
      if (shown.view.range) layout.yaxis.range = shown.view.range;
    }
    if (shown.axis) layout.xaxis.title.text = shown.axis.axis;
    const traces = figure.marks.filter(wanted).map((mark) => encodeMark(mark, figure));
    Plotly.react(place, toned(traces), toned(layout), {
      ...config,
      displayModeBar: !narrow.matches,
    });
  }

  return { figures, plot, themes: [dark, narrow] };
})();
