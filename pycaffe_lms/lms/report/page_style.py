"""Hold the style sheet and the script of a plan's page: zoom, tooltips, sorting of the table."""

CSS = """
:root { --ink: #1c1c1a; --dim: #66655f; --line: #d9d8d2; --paper: #fcfcfa; --wash: #f1f0ec;
  --activations: #2a78d6; --gradients: #eb6834; --parameters: #1baf7a; --scratch: #eda100;
  --resident: #8b8a84; --workspace: #bcbbb4; --backward: #4a3aa7; --stall: #d03b3b; }
@media (prefers-color-scheme: dark) { :root { --ink: #ecebe6; --dim: #a09f98; --line: #3b3a37; --paper: #191918;
  --wash: #262523; --backward: #9085e9; --resident: #77766f; --workspace: #55544f; } }
body { font: 14px/1.45 system-ui, sans-serif; color: var(--ink); background: var(--paper);
  margin: 0 auto; padding: 24px; max-width: 1280px; }
h1 { font-size: 22px; margin: 0 0 2px; } h2 { font-size: 16px; margin: 30px 0 6px; }
h3 { font-size: 13px; margin: 10px 0 2px; }
p, .dim { color: var(--dim); margin: 2px 0; }
dl { display: grid; grid-template-columns: repeat(auto-fill, minmax(230px, 1fr)); gap: 8px 20px; margin: 14px 0; }
dt { color: var(--dim); font-size: 12px; } dd { margin: 0; overflow-wrap: anywhere; }
svg.zooms { width: 100%; display: block; background: var(--wash); }
#memory { height: 300px; } .lanes { height: 96px; }
.lane-names { display: grid; grid-template-rows: repeat(3, 32px); font-size: 12px; color: var(--dim);
  align-items: center; }
.rowed { display: grid; grid-template-columns: 76px 1fr; }
.axis { display: flex; justify-content: space-between; font-size: 12px; color: var(--dim); margin-left: 76px; }
.k-resident, .resident { fill: var(--resident); background: var(--resident); }
.k-workspace, .workspace { fill: var(--workspace); background: var(--workspace); }
.k-activations, .activations, .forward, .in { fill: var(--activations); background: var(--activations); }
.k-gradients, .gradients, .out { fill: var(--gradients); background: var(--gradients); }
.k-parameters, .parameters, .other { fill: var(--parameters); background: var(--parameters); }
.k-scratch, .scratch, .again { fill: var(--scratch); background: var(--scratch); }
.backward { fill: var(--backward); background: var(--backward); }
.host { fill: var(--dim); background: var(--dim); } .stall { fill: var(--stall); background: var(--stall); }
line.budget { stroke: var(--stall); stroke-width: 2; stroke-dasharray: 8 5; vector-effect: non-scaling-stroke; }
rect:hover { opacity: .6; }
.key span { display: inline-block; margin-right: 16px; font-size: 12px; color: var(--dim); }
.key i { display: inline-block; width: 10px; height: 10px; margin-right: 5px; border-radius: 2px; }
#tip { position: fixed; pointer-events: none; background: var(--ink); color: var(--paper); padding: 4px 8px;
  border-radius: 4px; font-size: 12px; max-width: 460px; white-space: pre-line; display: none; z-index: 9; }
.table { overflow: auto; max-height: 640px; border: 1px solid var(--line); }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; font-size: 13px; }
th { position: sticky; top: 0; background: var(--wash); cursor: pointer; text-align: right; padding: 5px 9px;
  font-weight: 600; white-space: nowrap; }
td { text-align: right; padding: 3px 9px; border-top: 1px solid var(--line); white-space: nowrap; }
th:first-child, td:first-child { text-align: left; white-space: normal; overflow-wrap: anywhere; }
pre { background: var(--wash); padding: 10px; overflow: auto; font-size: 12px; }
"""

SCRIPT = """
(function () {
  const data = JSON.parse(document.getElementById('data').textContent);
  const charts = [...document.querySelectorAll('svg.zooms')], tip = document.getElementById('tip');
  const axes = [...document.querySelectorAll('.axis')];
  let left = 0, width = data.ticks, drag = null;
  const size = b => { for (const u of ['B', 'KiB', 'MiB', 'GiB']) { if (b < 1024) return b.toPrecision(3) + ' ' + u;
    b /= 1024; } return b.toPrecision(3) + ' TiB'; };
  const ms = s => (1e3 * s).toPrecision(4) + ' ms';
  function show() {
    width = Math.min(data.ticks, Math.max(data.ticks / 2000, width));
    left = Math.min(data.ticks - width, Math.max(0, left));
    for (const c of charts) { const v = c.viewBox.baseVal; v.x = left; v.width = width; }
    for (const a of axes) [...a.children].forEach((e, i, all) =>
      e.textContent = ms(data.seconds * (left + width * i / (all.length - 1)) / data.ticks));
  }
  const at = (c, e) => { const r = c.getBoundingClientRect(); return left + width * (e.clientX - r.left) / r.width; };
  function say(e, text) {
    tip.style.display = text ? 'block' : 'none'; tip.textContent = text || '';
    tip.style.left = Math.min(e.clientX + 14, innerWidth - tip.offsetWidth - 8) + 'px';
    tip.style.top = e.clientY + 16 + 'px';
  }
  function held(seconds) {
    let lo = 0, hi = data.at.length - 1;
    while (lo < hi) { const mid = (lo + hi + 1) >> 1; if (data.at[mid] <= seconds) lo = mid; else hi = mid - 1; }
    let sum = 0; const lines = [];
    for (const [name, values] of data.held) {
      const v = values.length > 1 ? values[lo] : values[0]; sum += v; if (v) lines.push(name + ' ' + size(v)); }
    return ms(seconds) + ': ' + size(sum) + '\\n' + lines.reverse().join('\\n');
  }
  for (const c of charts) {
    c.addEventListener('wheel', e => { e.preventDefault(); const x = at(c, e), by = e.deltaY > 0 ? 1.25 : 0.8;
      left = x - (x - left) * by; width *= by; show(); }, { passive: false });
    c.addEventListener('pointerdown', e => { drag = at(c, e); });
    c.addEventListener('dblclick', () => { left = 0; width = data.ticks; show(); });
    c.addEventListener('pointermove', e => {
      if (drag !== null && e.buttons) { left += drag - at(c, e); show(); return; }
      drag = null;
      say(e, c.id === 'memory' ? held(data.seconds * at(c, e) / data.ticks) : e.target.dataset.t); });
    c.addEventListener('pointerleave', e => say(e, ''));
  }
  document.querySelectorAll('th').forEach((th, i) => th.addEventListener('click', () => {
    const body = th.closest('table').tBodies[0], way = th.dataset.way = th.dataset.way === '-1' ? 1 : -1;
    const value = r => { const c = r.cells[i]; return i ? Number(c.dataset.v) : c.textContent; };
    body.append(...[...body.rows].sort((a, b) => (value(a) < value(b) ? -1 : value(a) > value(b) ? 1 : 0) * way));
  }));
})();
"""
