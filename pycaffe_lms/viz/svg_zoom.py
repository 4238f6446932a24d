"""Make an SVG picture of Graphviz fill the window of a browser, with the wheel to zoom and the mouse to move."""

from __future__ import annotations

import re

# The picture begins whole where letters are large enough to read, else at its beginning in a size that can be read.
_SCRIPT = b"""<script><![CDATA[
(function () {
  const svg = document.documentElement, { x, y, width, height } = svg.viewBox.baseVal;
  const all = { x, y, width, height }, READABLE = 0.9, LARGE = 4 / 3;  /* pixels per unit; letters have 11 or more */
  let at, drag = null, moved = false;
  function set(box) {
    at = box, moved = true;
    svg.setAttribute('viewBox', [at.x, at.y, at.width, at.height].join(' '));
  }
  const fit = () => Math.min(innerWidth / all.width, innerHeight / all.height);
  function show(scale) {  /* where there is no room for all: the top of a tall picture, the left of a wide one */
    const width = innerWidth / scale, height = innerHeight / scale, wide = all.width > all.height;
    const [across, down] = [(all.width - width) / 2, (all.height - height) / 2];
    const x = wide ? Math.min(0, across) : across, y = wide ? down : Math.min(0, down);
    set({ x: all.x + x, y: all.y + y, width, height });
  }
  const where = e => ({ x: at.x + at.width * e.clientX / innerWidth, y: at.y + at.height * e.clientY / innerHeight });
  addEventListener('wheel', e => {
    e.preventDefault();
    const p = where(e), by = e.deltaY > 0 ? 1.2 : 1 / 1.2;
    set({ x: p.x - (p.x - at.x) * by, y: p.y - (p.y - at.y) * by, width: at.width * by, height: at.height * by });
  }, { passive: false });
  addEventListener('pointerdown', e => { drag = where(e); });
  addEventListener('pointerup', () => { drag = null; });
  addEventListener('pointermove', e => {
    if (drag && e.buttons) { const p = where(e); set({ ...at, x: at.x + drag.x - p.x, y: at.y + drag.y - p.y }); }
  });
  addEventListener('dblclick', () => show(at.width < all.width || at.height < all.height ? fit() : start()));
  const start = () => Math.min(LARGE, Math.max(fit(), READABLE));
  const begin = () => { if (!moved) { show(start()); moved = false; } };
  addEventListener('resize', begin);
  svg.style.cursor = 'grab';
  begin();
})();
]]></script>
"""


def zoomable(svg: bytes) -> bytes:
    """Return the picture with a size of 100%, its `viewBox`, and a script; programs that run none show all of it."""
    head, end = re.compile(rb'<svg width="[^"]*" height="[^"]*"'), svg.rindex(b"</svg>")
    body, count = head.subn(b'<svg width="100%" height="100%"', svg[:end], count=1)
    assert count == 1 and b"viewBox=" in body, "an SVG of Graphviz"
    return body + _SCRIPT + svg[end:]
