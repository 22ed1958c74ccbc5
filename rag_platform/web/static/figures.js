// Draws what `data-trend` holds: a line and a band of its 95 % interval for each dataset and
// strategy; the table beside it has the same figures.
"use strict";

const HUES = [212, 28, 142, 282, 0, 182, 50, 322];

function drawTrend(element) {
  const points = JSON.parse(element.dataset.trend);
  const style = getComputedStyle(document.documentElement);
  const ink = style.getPropertyValue("--pico-color").trim();
  const grid = style.getPropertyValue("--pico-muted-border-color").trim();
  const names = [...new Set(points.map((point) => `${point.dataset_id}, ${point.strategy}`))];
  const times = points.map((point) => Date.parse(point.started_at) / 1000);
  const data = [times];
  const series = [{}];
  const bands = [];
  names.forEach((name, place) => {
    const own = points.map((point) => `${point.dataset_id}, ${point.strategy}` === name);
    const column = (key) => points.map((point, row) => (own[row] ? point[key] : null));
    const hue = HUES[place % HUES.length];
    const line = `hsl(${hue} 65% 48%)`;
    const first = data.length;
    data.push(column("value"), column("high"), column("low"));
    const edge = { show: true, stroke: "transparent", width: 0, points: { show: false }, spanGaps: true };
    series.push(
      { label: name, stroke: line, width: 2, spanGaps: true, points: { show: true, size: 7, fill: line } },
      { ...edge, label: `${name} ↑` },
      { ...edge, label: `${name} ↓` },
    );
    bands.push({ series: [first + 1, first + 2], fill: `hsl(${hue} 65% 48% / 0.18)` });
  });
  const axis = { stroke: ink, grid: { stroke: grid, width: 1 }, ticks: { stroke: grid } };
  const values = points.flatMap((point) => [point.low, point.high]);
  const bounded = values.every((value) => value >= 0 && value <= 1);
  const chart = new uPlot(
    {
      width: element.clientWidth,
      height: 240,
      series,
      bands,
      axes: [axis, axis],
      legend: { show: names.length > 1, live: false },
      cursor: { drag: { x: false, y: false } },
      scales: {
        // of the points themselves: uPlot stretches the range of a single one over years
        x: { range: () => [Math.min(...times) - 3600, Math.max(...times) + 3600] },
        ...(bounded ? { y: { range: [Math.max(0, Math.min(...values) - 0.05), 1.01] } } : {}),
      },
    },
    data,
    element,
  );
  for (const row of element.querySelectorAll(".u-series")) {
    const label = row.querySelector(".u-label")?.textContent ?? "";
    row.hidden = /[↑↓]$/.test(label);
  }
  new ResizeObserver(() => chart.setSize({ width: element.clientWidth, height: 240 })).observe(element);
}

for (const element of document.querySelectorAll("[data-trend]")) drawTrend(element);
