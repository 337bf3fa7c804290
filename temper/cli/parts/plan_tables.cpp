#include "temper/cli/parts/plan_tables.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <iomanip>
#include <nlohmann/json.hpp>

#include "temper/base/json.h"
#include "temper/check/text.h"
#include "temper/metrics/format.h"
#include "temper/text/unicode.h"

namespace temper::cli {
namespace {

constexpr size_t kShown = 16;  // meshes

Json json_of(const checks::Parts& parts) {
  Json out = Json::object();
  for (const auto& [name, bytes] : parts) out[name] = bytes;
  return out;
}

Json json_of(const checks::MeshCost& c) {
  Json out = Json::object(), sent = Json::object();
  for (size_t i = 0; i < dist::axes().size(); ++i) {
    out[dist::axes()[i].name] = c.ranks[i];
    sent[dist::axes()[i].name] = c.sent_bytes[i];
  }
  out["fits"] = c.fits;
  out["peak_bytes"] = c.memory.peak_bytes();
  out["parts"] = json_of(c.memory.peak().parts);
  out["sent_bytes"] = sent;
  const auto add = [&](const char* name, const std::optional<double>& seconds) {
    if (seconds) out[name] = *seconds;
  };
  add("compute_seconds", c.compute);
  add("communication_seconds", c.communication);
  add("step_seconds_at_least", c.overlapped);
  add("step_seconds_at_most", c.in_turn);
  return out;
}

std::string seconds(const std::optional<double>& value) {
  return value ? checks::seconds_text(*value) : "-";
}

}  // namespace

std::string json_of(const checks::CheckList& list, const checks::MemoryPlan* memory,
                    std::span<const checks::MeshCost> meshes, const Json& shown) {
  Json out{{"checks", Json::array()},
           {"plan", {{"peak_bytes", nullptr}, {"parts", Json::object()}}}};
  for (const auto& check : list.checks()) {
    Json line{{"name", check.name},
              {"status", checks::name_of(check.finding.status)},
              {"message", check.finding.message}};
    if (!check.finding.values.is_null()) line["values"] = check.finding.values;
    out["checks"].push_back(std::move(line));
  }
  if (memory) {
    out["plan"] = {{"peak_bytes", memory->peak_bytes()},
                   {"parts", json_of(memory->peak().parts)},
                   {"phase", memory->peak().name}};
    for (const checks::MemoryPlan::Phase& phase : memory->phases)
      out["plan"]["phases"][phase.name] = {{"bytes", phase.bytes()},
                                           {"parts", json_of(phase.parts)}};
  }
  for (const checks::MeshCost& cost : meshes) out["meshes"].push_back(json_of(cost));
  if (!shown.is_null()) out["shown"] = shown;
  return dump_json(out);
}

void print_checks(std::ostream& out, const checks::CheckList& list,
                  const checks::MemoryPlan* memory) {
  size_t width = 0;
  for (const auto& check : list.checks()) width = std::max(width, check.name.size());
  const auto shown = [](const std::string& message) {
    return printable_line(message.substr(0, message.find_last_not_of('\n') + 1));
  };
  for (const auto& check : list.checks())
    out << std::left << std::setw(6) << checks::name_of(check.finding.status)
        << std::setw(static_cast<int>(width) + 2) << check.name << shown(check.finding.message)
        << "\n";
  if (!memory) return;
  out << "\nmemory of a rank, at its peak (" << memory->peak().name << ")\n";
  for (const auto& [name, bytes] : memory->peak().parts)
    if (bytes > 0)
      out << "  " << std::left << std::setw(16) << name << std::right << std::setw(9)
          << checks::megabytes(static_cast<double>(bytes)) << "\n";
  out << "  " << std::left << std::setw(16) << "all" << std::right << std::setw(9)
      << checks::megabytes(static_cast<double>(memory->peak_bytes())) << std::endl;
}

void print_rates(std::ostream& out, std::span<const checks::LearningRate> rates) {
  constexpr int kHeight = 5;
  constexpr std::array kEighths = {" ", "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
  double highest = 0;
  for (const checks::LearningRate& rate : rates) highest = std::max(highest, rate.rate);
  if (rates.size() < 3 || !(highest > 0)) return;
  out << "\nlearning rate, step 1 to " << checks::counted(rates.back().step) << "\n";
  for (int line = kHeight - 1; line >= 0; --line) {
    out << std::right << std::setw(11)
        << (line == kHeight - 1 ? format_brief(highest)
            : line == 0         ? "0"
                                : "")
        << " ";
    for (const checks::LearningRate& rate : rates) {
      const auto eighths =
          static_cast<int>(std::lround(rate.rate / highest * kHeight * 8)) - line * 8;
      out << kEighths[static_cast<size_t>(std::clamp(eighths, 0, 8))];
    }
    out << "\n";
  }
  out << std::flush;
}

void print_meshes(std::ostream& out, const checks::RunShape& run, const checks::Machine& machine,
                  std::span<const checks::MeshCost> meshes) {
  const double tokens = static_cast<double>(machine.step_tokens);
  const bool mixture = run.policy.shape.experts > 0;
  const auto fitting = static_cast<size_t>(
      std::count_if(meshes.begin(), meshes.end(), [](const auto& c) { return c.fits; }));
  out << checks::counted(run.policy.shape.parameters()) << " parameters, "
      << checks::counted(machine.step_tokens) << " tokens a step in rows of "
      << checks::counted(machine.sequence) << ", "
      << checks::counted(static_cast<int64_t>(
             checks::step_flops(run, tokens, static_cast<double>(machine.sequence))))
      << " operations; " << fitting << " of " << meshes.size() << " meshes of " << machine.devices
      << " devices fit " << checks::megabytes(static_cast<double>(machine.memory)) << "\n\n"
      << std::right;
  // Calls print(axis, first) for the columns of axes that the model has a use for.
  const bool divided =
      std::ranges::any_of(meshes, [](const auto& c) { return c.ranks.context > 1; });
  const auto each_axis = [&](auto print) {
    for (size_t i = 0; i < dist::axes().size(); ++i) {
      const dist::Axis& axis = dist::axes()[i];
      if (axis.divides == dist::Axis::Divides::kExperts && !mixture) continue;
      if (!axis.divides_tokens() || divided) print(i, i == 0);
    }
  };
  const auto width_of = [](size_t axis) {
    return std::max(6, static_cast<int>(std::string_view(dist::axes()[axis].name).size()) + 1);
  };
  each_axis([&](size_t i, bool) { out << std::setw(width_of(i)) << dist::axes()[i].name; });
  out << "    memory   weights gradients optimizer activations  sent:";
  each_axis(
      [&](size_t i, bool first) { out << std::setw(first ? 5 : 10) << dist::axes()[i].name; });
  out << "   compute      sent  step at least  at most\n";
  const auto part = [](const checks::MeshCost& c, const char* name) {
    for (const auto& [of, bytes] : c.memory.peak().parts)
      if (of == name) return checks::megabytes(static_cast<double>(bytes));
    return std::string("-");
  };
  const size_t shown =
      std::min(kShown, std::max<size_t>(fitting, std::min<size_t>(meshes.size(), 3)));
  for (const checks::MeshCost& c : meshes.subspan(0, shown)) {
    const auto column = [&](int width, const auto& value) { out << std::setw(width) << value; };
    out << std::right;
    each_axis([&](size_t i, bool) { column(width_of(i), c.ranks[i]); });
    column(10, checks::megabytes(static_cast<double>(c.memory.peak_bytes())));
    column(10, part(c, "weights"));
    column(10, part(c, "gradients"));
    column(10, part(c, "optimizer"));
    column(12, part(c, "activations"));
    each_axis(
        [&](size_t i, bool first) { column(first ? 12 : 10, checks::megabytes(c.sent_bytes[i])); });
    column(10, seconds(c.compute));
    column(10, seconds(c.communication));
    column(15, seconds(c.overlapped));
    column(9, seconds(c.in_turn));
    out << (c.fits ? "" : "  does not fit") << "\n";
  }
  if (shown < meshes.size()) out << "  ... and " << meshes.size() - shown << " more (--json)\n";
  out << "\n";
}

}  // namespace temper::cli
