// Where each node of a candidate tree stands: depth is the column, every leaf has its own line, a parent
// stands on its first child's line, accepted children come first. The accepted branch and the bonus token
// thus form one straight line along the top.

const BONUS = -1; // in the place of a node's index: the bonus token is no node of the tree

// step, `opened` (nodes that a person opened), `maxLines` -> {spots, edges, lines, columns, folded}. A spot is
// a node with its place: {index, node, kind, column, line, hidden}.
function layoutTree(step, opened, maxLines) {
  const nodes = step.nodes.length ? step.nodes : [unrecorded];
  const accepted = new Set(step.accepted);
  const lastAccepted = step.accepted.length ? step.accepted[step.accepted.length - 1] : 0;
  const children = nodes.map(() => []);
  nodes.forEach((n) => n.parent >= 0 && children[n.parent].push(n.index));
  children.forEach((below) =>
    below.sort((a, b) => accepted.has(b) - accepted.has(a) || nodes[b].score - nodes[a].score || a - b),
  );

  const folded = foldBranches(nodes, children, accepted, opened, maxLines - (step.bonusShown ? 1 : 0));
  const spots = [];
  const edges = [];
  let line = 0;

  function place(index, isFirst) {
    const node = nodes[index];
    const kind = index === 0 ? "root" : accepted.has(index) ? "accepted" : "rejected";
    if (!isFirst) line += 1;
    const spot = { index, column: node.depth, line, kind, node, hidden: folded.get(index) || 0 };
    spots.push(spot);
    let first = true;
    if (index === lastAccepted && step.bonusShown) {
      const column = node.depth + 1;
      const token = { token: step.bonus, text: step.bonusText, depth: column, parent: index, source: "bonus", stored: step.bonusStored };
      const bonus = { index: BONUS, column, line, kind: "bonus", node: token, hidden: 0 };
      spots.push(bonus);
      edges.push({ from: spot, to: bonus, kind: "bonus" });
      first = false;
    }
    if (folded.has(index)) return spot;
    for (const child of children[index]) {
      const to = place(child, first);
      edges.push({ from: spot, to, kind: to.kind });
      first = false;
    }
    return spot;
  }

  place(0, true);
  const columns = 1 + Math.max(...spots.map((spot) => spot.column));
  return { spots, edges, lines: line + 1, columns, folded: folded.size };
}

// The only node of a step whose recorder was off; the text of the last confirmed token is not known.
const unrecorded = { index: 0, token: null, text: "…", parent: -1, depth: 0, source: "root", score: 1, rank: 0, contributions: [] };

// Closes rejected branches, the least likely first, until the tree has at most maxLines lines.
// -> Map from the index of a closed node to its number of hidden descendants.
function foldBranches(nodes, children, accepted, opened, maxLines) {
  const leaves = nodes.map(() => 0);
  const below = nodes.map(() => 0);
  for (let index = nodes.length - 1; index >= 0; index--) {
    // Packed order puts parents before children, so this runs from the leaves up.
    for (const child of children[index]) {
      leaves[index] += leaves[child];
      below[index] += 1 + below[child];
    }
    leaves[index] = Math.max(1, leaves[index]);
  }
  const folded = new Map();
  let lines = leaves[0];
  const candidates = nodes
    .filter((n) => n.index && !accepted.has(n.index) && leaves[n.index] > 1 && !opened.has(n.index))
    .sort((a, b) => a.score - b.score);
  for (const { index } of candidates) {
    if (lines <= maxLines) break;
    if ([...folded.keys()].some((closed) => isBelow(index, closed, nodes))) continue;
    for (const closed of [...folded.keys()]) {
      if (!isBelow(closed, index, nodes)) continue;
      lines += leaves[closed] - 1; // it is hidden by the larger branch now
      folded.delete(closed);
    }
    folded.set(index, below[index]);
    lines -= leaves[index] - 1;
  }
  return folded;
}

function isBelow(index, ancestor, nodes) {
  for (let at = nodes[index].parent; at >= 0; at = nodes[at].parent) if (at === ancestor) return true;
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
