// Where each node of a candidate tree stands: depth is the column, every leaf has its own line, a parent
// stands on its first child's line, accepted children come first. The accepted branch and the target's own
// token thus form one straight line along the top.

const OWN = -1; // row of the target's own token: it was not drafted, so it has no packed row

// step, `opened` (rows that a person opened), `maxLines` -> {nodes, edges, lines, columns, folded}
function layoutTree(step, opened, maxLines) {
  const nodes = step.nodes.length ? step.nodes : [rootOnly(step)];
  const accepted = new Set(step.accepted);
  const lastAccepted = step.accepted.length ? step.accepted[step.accepted.length - 1] : 0;
  const children = nodes.map(() => []);
  nodes.forEach((n) => n.parent >= 0 && children[n.parent].push(n.row));
  children.forEach((rows) =>
    rows.sort((a, b) => accepted.has(b) - accepted.has(a) || nodes[b].score - nodes[a].score || a - b),
  );

  const folded = foldBranches(nodes, children, accepted, opened, maxLines - (step.ownShown ? 1 : 0));
  const placed = [];
  const edges = [];
  let line = 0;

  function place(row, isFirst) {
    const node = nodes[row];
    const kind = row === 0 ? "root" : accepted.has(row) ? "accepted" : "rejected";
    if (!isFirst) line += 1;
    const spot = { row, column: node.depth, line, kind, node, hidden: folded.get(row) || 0 };
    placed.push(spot);
    let first = true;
    if (row === lastAccepted && step.ownShown) {
      const own = { row: OWN, column: node.depth + 1, line: spot.line, kind: "own", hidden: 0 };
      own.node = { token: step.own, text: step.ownText, depth: node.depth + 1, parent: row, source: "own", known: step.ownKnown };
      placed.push(own);
      edges.push({ from: spot, to: own, kind: "own" });
      first = false;
    }
    if (folded.has(row)) return spot;
    for (const child of children[row]) {
      const to = place(child, first);
      edges.push({ from: spot, to, kind: to.kind });
      first = false;
    }
    return spot;
  }

  place(0, true);
  const columns = 1 + Math.max(...placed.map((p) => p.column));
  return { nodes: placed, edges, lines: line + 1, columns, folded: folded.size };
}

// A step whose recorder was off: the root's text is not known.
function rootOnly() {
  return { row: 0, token: null, text: "…", parent: -1, depth: 0, source: "root", score: 1, rank: 0, votes: [] };
}

// Closes rejected branches, the least likely first, until the tree has at most maxLines lines.
// -> Map row -> number of hidden descendants.
function foldBranches(nodes, children, accepted, opened, maxLines) {
  const leaves = nodes.map(() => 0);
  const below = nodes.map(() => 0);
  for (let row = nodes.length - 1; row >= 0; row--) {
    // Packed order puts parents before children, so this runs from the leaves up.
    for (const child of children[row]) {
      leaves[row] += leaves[child];
      below[row] += 1 + below[child];
    }
    leaves[row] = Math.max(1, leaves[row]);
  }
  const folded = new Map();
  let lines = leaves[0];
  const candidates = nodes
    .filter((n) => n.row && !accepted.has(n.row) && leaves[n.row] > 1 && !opened.has(n.row))
    .sort((a, b) => a.score - b.score);
  for (const node of candidates) {
    if (lines <= maxLines) break;
    if (isInside(node.row, folded, nodes)) continue;
    let saved = leaves[node.row] - 1;
    for (const row of [...folded.keys()]) {
      if (!isBelow(row, node.row, nodes)) continue;
      saved -= leaves[row] - 1; // that one was closed already
      folded.delete(row);
    }
    if (saved <= 0 && leaves[node.row] < 2) continue;
    folded.set(node.row, below[node.row]);
    lines -= saved;
  }
  return folded;
}

function isInside(row, folded, nodes) {
  for (let at = nodes[row].parent; at >= 0; at = nodes[at].parent) if (folded.has(at)) return true;
  return false;
}

function isBelow(row, ancestor, nodes) {
  for (let at = nodes[row].parent; at >= 0; at = nodes[at].parent) if (at === ancestor) return true;
  return false;
}

// Roughly how many monospace cells a shown text takes: wide scripts and emoji take two, marks none.
function cells(text) {
  if (/^[ -\u024f…⏎]*$/.test(text)) return text.length;
  let n = 0;
  for (const c of text) {
    if (/\p{M}/u.test(c)) continue;
    n += /[\u1100-\u115f\u2e80-\ua4cf\uac00-\ud7a3\uf900-\ufaff\ufe30-\ufe4f\uff00-\uff60]|\p{Extended_Pictographic}/u.test(c) ? 2 : 1;
  }
  return n;
}
