#include "temper/cli/top_page.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <vector>

#include "temper/base/error.h"
#include "temper/base/json.h"
#include "temper/train/run/run_lock.h"

namespace temper::cli {
namespace {

constexpr uint64_t kMostMetrics = uint64_t{1} << 20;   // bytes of an answer
constexpr uint64_t kMostRollouts = uint64_t{2} << 20;  // bytes that are read of a file
constexpr size_t kMostRows = 64, kMostText = 4000;     // of rollouts; bytes of one's text
constexpr size_t kMostSteps = 2000;                    // newest ones that are named

constexpr const char* kPage = R"page(<!doctype html>
<meta charset="utf-8"><title>temper top</title>
<style>
body{font:14px system-ui,sans-serif;margin:1.5em;max-width:1200px;color:#222;background:#fff}
#curves{display:grid;grid-template-columns:repeat(auto-fill,minmax(330px,1fr));gap:12px}
figure{margin:0;border:1px solid #ddd;padding:6px}figcaption{font-weight:600}
svg{width:100%;height:130px}polyline{fill:none;stroke:#2563eb;stroke-width:1.5}
table{border-collapse:collapse;width:100%}
td,th{border:1px solid #ddd;padding:4px;text-align:left;vertical-align:top}
td.text{white-space:pre-wrap;word-break:break-word}
@media(prefers-color-scheme:dark){
body{color:#ddd;background:#161616}figure,td,th{border-color:#444}}
</style>
<h1 id="title">temper top</h1><p id="state"></p><div id="curves"></div>
<h2>Rollouts</h2><p><select id="steps"></select></p><table id="rollouts"></table>
<script>
"use strict";
const $ = id => document.getElementById(id), series = new Map(), figures = new Map();
const first = ["reward_mean", "loss", "eval/reward_mean", "eval/loss", "kl", "entropy",
  "completion_length_mean", "grad_norm", "learning_rate", "tokens_per_second"];
let from = 0, chosen = null;
const node = (name, text) => { const n = document.createElement(name);
  if (text !== undefined) n.textContent = text; return n; };
const shape = (name, attributes) => {
  const n = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const key in attributes) n.setAttribute(key, attributes[key]); return n; };
const short = x => Number.isInteger(x) ? String(x) : Number(x).toPrecision(4);
function take(line) {
  let row; try { row = JSON.parse(line); } catch { return; }
  if (!row || typeof row.step !== "number") return;
  for (const key in row) if (key !== "step" && typeof row[key] === "number") {
    if (!series.has(key)) series.set(key, []);
    series.get(key).push([row.step, row[key]]);
  }
}
function draw() {
  const rank = name => { const i = first.indexOf(name); return i < 0 ? first.length : i; };
  for (const name of [...series.keys()].sort((a, b) => rank(a) - rank(b) || (a < b ? -1 : 1))) {
    if (!figures.has(name)) {
      figures.set(name, node("figure"));
      $("curves").append(figures.get(name));
    }
    const all = series.get(name), every = Math.ceil(all.length / 600);
    const points = all.filter((p, i) => i % every === 0 || i === all.length - 1);
    const xs = points.map(p => p[0]), ys = points.map(p => p[1]);
    const low = Math.min(...ys), high = Math.max(...ys), x0 = Math.min(...xs), x1 = Math.max(...xs);
    const at = p => (300 * (p[0] - x0) / (x1 - x0 || 1)).toFixed(1) + "," +
      (105 - 100 * (p[1] - low) / (high - low || 1)).toFixed(1);
    const svg = shape("svg", {viewBox: "0 0 300 110", preserveAspectRatio: "none"});
    svg.append(shape("polyline",
      {points: points.map(at).join(" "), "vector-effect": "non-scaling-stroke"}));
    const title = node("figcaption", name + "  " + short(ys[ys.length - 1]));
    figures.get(name).replaceChildren(title, svg,
      node("small", short(low) + " to " + short(high) + ", steps " + x0 + " to " + x1));
  }
}
async function ask(path) {
  const r = await fetch(path);
  if (!r.ok) throw new Error(await r.text());
  return r.json();
}
async function metrics() {
  for (;;) {
    const got = await ask("metrics?from=" + from);
    if (got.next < from) { series.clear(); figures.clear(); $("curves").replaceChildren(); }
    got.lines.forEach(take);
    const more = got.next > from && got.next < got.size;
    from = got.next;
    if (more) continue;
    const steps = [...series.values()].flat().map(p => p[0]);
    const last = steps.reduce((a, b) => Math.max(a, b), 0);
    $("title").textContent = got.run;
    $("state").textContent = "step " + last + (got.planned ? " of " + got.planned : "") +
      (got.running ? "" : "; not running");
    return;
  }
}
async function show(step) {
  chosen = step;
  const table = $("rollouts"), head = node("tr");
  const keys = ["group", "sample", "reward", "rewards", "advantage", "finish_reason", "text"];
  for (const key of keys) head.append(node("th", key));
  const rows = [head];
  for (const row of (await ask("rollouts?step=" + step)).rows) {
    const tr = node("tr");
    for (const key of keys) {
      const value = row[key], td = node("td", value === undefined || value === null ? "" :
        typeof value === "object" ? JSON.stringify(value) :
        typeof value === "number" ? short(value) : value);
      if (key === "text") td.className = "text";
      tr.append(td);
    }
    rows.push(tr);
  }
  table.replaceChildren(...rows);
}
async function rollouts() {
  const steps = (await ask("rollouts")).steps, list = $("steps"), follows = list.selectedIndex <= 0;
  const option = s => { const o = node("option", "step " + s); o.value = s; return o; };
  list.replaceChildren(...steps.map(option));
  if (!follows) list.value = chosen;
  const step = follows ? steps[0] : Number(list.value);
  if (steps.length && step !== chosen) await show(step);
}
$("steps").onchange = () => show(Number($("steps").value));
async function tick() {
  try { await metrics(); draw(); await rollouts(); }
  catch (e) { $("state").textContent = "no answer: " + e.message; }
  setTimeout(tick, 2000);
}
tick();
</script>
)page";

// The file's bytes from `begin` on, at most so many, and its size; nothing where it is no regular
// file.
struct FilePart {
  std::string bytes;
  uint64_t size = 0;
};
std::optional<FilePart> read_part(const std::string& path, uint64_t begin, uint64_t most) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW);
  if (fd < 0) return std::nullopt;
  struct stat about{};
  std::optional<FilePart> part;
  if (::fstat(fd, &about) == 0 && S_ISREG(about.st_mode)) {
    part.emplace();
    part->size = static_cast<uint64_t>(about.st_size);
    part->bytes.resize(begin < part->size ? std::min(most, part->size - begin) : 0);
    size_t read = 0;
    while (read < part->bytes.size()) {
      const ssize_t n = ::pread(fd, part->bytes.data() + read, part->bytes.size() - read,
                                static_cast<off_t>(begin + read));
      if (n <= 0) break;
      read += static_cast<size_t>(n);
    }
    part->bytes.resize(read);
  }
  ::close(fd);
  return part;
}

// The whole lines that the text begins with; `bytes` is set to where they end.
std::vector<std::string> whole_lines(const std::string& text, size_t& bytes) {
  std::vector<std::string> lines;
  bytes = 0;
  for (size_t end = 0; (end = text.find('\n', bytes)) != std::string::npos; bytes = end + 1)
    lines.push_back(text.substr(bytes, end - bytes));
  return lines;
}

// The number that a query of this one key has; nothing for another query.
std::optional<uint64_t> number_of(std::string_view query, std::string_view key) {
  if (!query.starts_with(key)) return std::nullopt;
  query.remove_prefix(key.size());
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(query.data(), query.data() + query.size(), value);
  const bool whole = error == std::errc() && end == query.data() + query.size();
  return whole && value <= INT64_MAX ? std::optional(value) : std::nullopt;
}

std::string message_json(const std::string& message) { return dump_json({{"error", message}}); }

// What the page shows of a line of a rollouts file.
Json shown_rollout(const Json& line) {
  Json row = Json::object();
  for (const char* key : {"group", "sample", "reward", "rewards", "advantage", "finish_reason"})
    if (line.contains(key) && !line[key].is_array()) row[key] = line[key];
  const Json text = line.value("text", Json(""));
  if (text.is_string()) {
    std::string shown = text.get<std::string>();
    if (shown.size() > kMostText) {
      shown.resize(kMostText);
      shown += "...";
    }
    row["text"] = std::move(shown);
  }
  return row;
}

}  // namespace

TopPage::TopPage(std::string run, int64_t planned_steps)
    : run_(std::move(run)),
      planned_steps_(planned_steps),
      rules_{.host = "127.0.0.1", .has_flags = false} {}

http::Admission TopPage::admit(const http::RequestHead& head) {
  http::Admission admission;
  if (const auto denial = http::check_page(rules_, head))
    admission.answer = refusal(denial->status, denial->message);
  else if (head.method != "GET" && head.method != "HEAD")
    admission.answer = refusal(405, "expected GET");
  else
    admission.answer = answer_to(head);
  // The page takes nothing from elsewhere, and no other page may show it.
  admission.answer->headers = {
      {"Content-Security-Policy",
       "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; connect-src "
       "'self'; frame-ancestors 'none'; base-uri 'none'"},
      {"X-Content-Type-Options", "nosniff"},
      {"Referrer-Policy", "no-referrer"},
      {"Cache-Control", "no-store"}};
  return admission;
}

http::Answer TopPage::refusal(int status, const std::string& message) {
  return {status, message_json(message)};
}

http::Answer TopPage::answer_to(const http::RequestHead& head) const {
  if (head.path == "/") return {200, kPage, "text/html; charset=utf-8"};
  if (head.path == "/rollouts" && head.query.empty()) return {200, rollout_steps()};
  if (head.path == "/metrics")
    if (const auto from = number_of(head.query, "from=")) return {200, metrics_from(*from)};
  if (head.path == "/rollouts")
    if (const auto step = number_of(head.query, "step=")) return {200, rollouts_of(*step)};
  return {404, message_json("expected /, /metrics?from=BYTE, /rollouts or /rollouts?step=N")};
}

std::string TopPage::metrics_from(uint64_t begin) const {
  const std::string path = run_ + "/metrics.jsonl";
  FilePart part = read_part(path, begin, kMostMetrics).value_or(FilePart());
  if (begin > part.size) {  // a resumed run cut it
    begin = 0;
    part = read_part(path, 0, kMostMetrics).value_or(FilePart());
  }
  size_t bytes = 0;
  Json lines = Json::array();
  for (std::string& line : whole_lines(part.bytes, bytes)) lines.push_back(std::move(line));
  return dump_json({{"run", run_},
                    {"lines", std::move(lines)},
                    {"next", begin + bytes},
                    {"size", part.size},
                    {"running", train::is_running(run_)},
                    {"planned", planned_steps_}});
}

// Newest first.
std::string TopPage::rollout_steps() const {
  constexpr std::string_view kBegin = "step-", kEnd = ".jsonl";
  std::vector<uint64_t> steps;
  std::error_code none;
  for (const auto& entry : std::filesystem::directory_iterator(run_ + "/rollouts", none)) {
    const std::string name = entry.path().filename();
    if (!name.ends_with(kEnd)) continue;
    const std::string stem = name.substr(0, name.size() - kEnd.size());
    if (const auto step = number_of(stem, kBegin)) steps.push_back(*step);
  }
  std::sort(steps.rbegin(), steps.rend());
  if (steps.size() > kMostSteps) steps.resize(kMostSteps);
  return dump_json({{"steps", steps}});
}

std::string TopPage::rollouts_of(uint64_t step) const {
  const auto part = read_part(str(run_, "/rollouts/step-", step, ".jsonl"), 0, kMostRollouts);
  size_t bytes = 0;
  Json rows = Json::array();
  if (part)
    for (const std::string& line : whole_lines(part->bytes, bytes)) {
      if (rows.size() == kMostRows) break;
      try {
        const Json row = parse_json(line, "rollouts");
        if (row.is_object()) rows.push_back(shown_rollout(row));
      } catch (const Error&) {  // not a line of rollouts
      }
    }
  return dump_json({{"rows", std::move(rows)}});
}

}  // namespace temper::cli
