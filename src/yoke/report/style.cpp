#include "yoke/report/style.h"

namespace yoke::report {

// Of charts, also in files of their own.
const char* const kChartStyle = R"css(
:root {
  color-scheme: light dark;
  --page: #f7f7f5; --card: #ffffff; --edge: #e6e5e1; --text: #1f2328; --soft: #5d646d; --grid: #ecebe8; --axis: #b9bcc1;
  --note: #fff8e6; --note-edge: #ecd9a0; --good: #1f7a4d; --bad: #c4372f; --code: #f3f2ef;
  --c1: #2f6bd0; --c2: #d2691e; --c3: #1f8f72; --c4: #8a5cc2; --c5: #b8456f; --c6: #7a828c;
  --c7: #0e8aa8; --c8: #a17400; --c9: #5252cf; --c10: #6f8020; --c11: #a8489f; --c12: #8d5a3b;
}
@media screen and (prefers-color-scheme: dark) {
  :root {
    --page: #121417; --card: #1a1d21; --edge: #2a2e34; --text: #e4e7eb; --soft: #a2a9b3; --grid: #272b30; --axis: #565d66;
    --note: #2a2417; --note-edge: #57492a; --good: #5fc795; --bad: #f07b72; --code: #22262b;
    --c1: #74a5f7; --c2: #f0a05a; --c3: #55c7a5; --c4: #b794ea; --c5: #ec86a9; --c6: #98a1ac;
    --c7: #5cc8e2; --c8: #dcb64a; --c9: #9c9ff7; --c10: #b6c95c; --c11: #e08fd8; --c12: #cf9a78;
  }
}
.chart { display: block; width: 100%; height: auto; font-size: 12px; font-family: system-ui, "Segoe UI", Roboto, "DejaVu Sans", Arial, sans-serif; font-variant-numeric: tabular-nums; }
.chart text { fill: var(--soft); }
.chart .end { text-anchor: end; } .chart .mid { text-anchor: middle; }
.chart .grid { stroke: var(--grid); } .chart .axis { stroke: var(--axis); }
.chart .key { fill: currentColor; }
.chart .on { fill: var(--card); font-size: 12px; }
.chart .line { fill: none; stroke: currentColor; stroke-width: 2; stroke-linejoin: round; stroke-linecap: round; }
.chart .line.dotted { stroke-dasharray: 1 5; }
.chart .line.theory { stroke-dasharray: 6 5; stroke-width: 1.6; }
.chart .faint { stroke-width: 1.2; opacity: .28; }
.chart .arrived { stroke: var(--text); stroke-width: 1.4; }
.chart .whisker { fill: none; stroke: var(--text); stroke-width: 1.4; }
.chart .dot { fill: currentColor; stroke: var(--card); stroke-width: 1.5; }
.bar { fill: currentColor; background: currentColor; }
.chart .bad rect { fill: var(--bad); opacity: .13; }
.chart .bad text { fill: var(--bad); }
.chart .hit rect { fill: transparent; }
.chart .guide { visibility: hidden; pointer-events: none; }
.chart .guide path { stroke: var(--axis); stroke-dasharray: 2 3; }
.chart .hit:hover .guide { visibility: visible; }
.chart .stack:hover { opacity: .8; }
.c1 { color: var(--c1); } .c2 { color: var(--c2); } .c3 { color: var(--c3); } .c4 { color: var(--c4); } .c5 { color: var(--c5); } .c6 { color: var(--c6); }
.c7 { color: var(--c7); } .c8 { color: var(--c8); } .c9 { color: var(--c9); } .c10 { color: var(--c10); } .c11 { color: var(--c11); } .c12 { color: var(--c12); }
)css";

const char* const kStyle = R"css(
* { box-sizing: border-box; }
html { -webkit-text-size-adjust: 100%; }
body {
  margin: 0; background: var(--page); color: var(--text); line-height: 1.5; font-size: 16px;
  font-family: system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", "Noto Sans", "DejaVu Sans", Arial, sans-serif;
}
main { max-width: 1120px; margin: 0 auto; padding: 48px 24px 64px; }
header { margin-bottom: 32px; }
.kicker { margin: 0; color: var(--soft); font-size: 13px; letter-spacing: .04em; }
h1 { margin: 4px 0 6px; font-size: 32px; line-height: 1.2; font-weight: 650; letter-spacing: -.015em; overflow-wrap: anywhere; }
h2 { margin: 44px 0 16px; font-size: 19px; font-weight: 620; letter-spacing: -.005em; }
h3 { margin: 0 0 10px; font-size: 15px; font-weight: 600; }
.about { margin: 0; color: var(--soft); overflow-wrap: anywhere; }
.about b { font-weight: 600; }
.done { color: var(--good); } .open { color: var(--c2); }
.notes { margin: 0 0 28px; padding: 12px 18px; background: var(--note); border: 1px solid var(--note-edge); border-radius: 10px; }
.notes p { margin: 2px 0; font-size: 15px; overflow-wrap: anywhere; }
.facts { display: grid; grid-template-columns: repeat(auto-fill, minmax(190px, 1fr)); gap: 14px; margin: 0; }
.facts div, .card { background: var(--card); border: 1px solid var(--edge); border-radius: 12px; }
.facts div { padding: 14px 16px 13px; min-width: 0; }
.facts dt { color: var(--soft); font-size: 13px; }
.facts dd { margin: 0; }
.facts .value { font-size: 23px; font-weight: 600; line-height: 1.35; letter-spacing: -.01em; font-variant-numeric: tabular-nums; overflow-wrap: anywhere; }
.facts .detail { color: var(--soft); font-size: 13px; min-height: 1.5em; overflow-wrap: anywhere; }
.grid2 { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 420px), 1fr)); gap: 18px; }
.grid2 + .card { margin-top: 18px; }
.card { padding: 18px 18px 12px; min-width: 0; margin: 0; break-inside: avoid; overflow-x: auto; }
.t1 .c1 { color: var(--c6); } .t1 .c2 { color: var(--c1); } .t1 .c3 { color: var(--c4); } .t1 .c4 { color: var(--c2); } .t1 .c5 { color: var(--c3); } .t1 .c6 { color: var(--axis); }
.share { display: flex; height: 26px; border-radius: 7px; overflow: hidden; gap: 2px; margin: 6px 0 14px; }
.share span { display: block; min-width: 2px; }
.scroll { overflow-x: auto; }
.below { margin: 10px 0 6px; }
.below p { margin: 3px 0; color: var(--soft); font-size: 13.5px; max-width: 90ch; }
.result { margin: 10px 0 20px; font-size: 17px; max-width: 80ch; }
header + .about { max-width: 90ch; }
figcaption.about { font-size: 13.5px; margin: 8px 0 6px; }
.wide { margin: 18px 0; }
.about + .grid2, .result + .grid2 { margin-top: 18px; }
.grid2 > figure:only-child { max-width: 620px; }
section.card + .grid2, .grid2 + .wide, .about + .card { margin-top: 18px; }
table { border-collapse: collapse; width: 100%; font-size: 14px; }
td, th { padding: 5px 0; text-align: left; font-weight: 400; vertical-align: top; border-top: 1px solid var(--grid); }
tr:first-child > * { border-top: 0; }
td.num, th + th { text-align: right; font-variant-numeric: tabular-nums; padding-left: 14px; white-space: nowrap; }
th.text, td.text { text-align: left; padding-left: 14px; white-space: nowrap; }
progress { width: 100%; accent-color: var(--c1); }
progress + p + table { margin-top: 14px; }
.swatch { display: inline-block; width: 11px; height: 11px; border-radius: 3px; margin-right: 9px; }
.config { columns: 320px auto; column-gap: 18px; }
.config .card { margin-bottom: 18px; padding-bottom: 14px; }
.config th { color: var(--soft); padding-right: 14px; white-space: nowrap; }
.config td { text-align: right; overflow-wrap: anywhere; }
code, pre, .config td { font-family: ui-monospace, "SF Mono", SFMono-Regular, Menlo, Consolas, "DejaVu Sans Mono", monospace; font-size: 13px; }
pre { margin: 8px 0 6px; padding: 12px 14px; background: var(--code); border-radius: 8px; white-space: pre-wrap; overflow-wrap: anywhere; }
.card p { margin: 0; color: var(--soft); font-size: 14px; }
footer { margin-top: 40px; color: var(--soft); font-size: 13px; }
@media (max-width: 560px) {
  main { padding: 28px 14px 40px; }
  h1 { font-size: 26px; }
  .facts { grid-template-columns: repeat(2, minmax(0, 1fr)); gap: 10px; }
  .facts .value { font-size: 20px; }
  .card { padding: 14px 12px 10px; }
  .chart { font-size: 13.5px; }
}
@media screen and (max-width: 560px) {
  .timeline, .broad { min-width: 600px; }  /* their cards scroll: labels stay readable */
}
@media print {
  body { font-size: 11pt; background: #fff; print-color-adjust: exact; -webkit-print-color-adjust: exact; }
  main { max-width: none; padding: 0; }
  .grid2 { grid-template-columns: 1fr 1fr; }
  h2 { break-after: avoid; }
}
)css";

}  // namespace yoke::report
