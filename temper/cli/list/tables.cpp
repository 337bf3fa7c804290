#include "temper/cli/list/tables.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

#include "temper/base/config/config.h"
#include "temper/distill/strategy.h"
#include "temper/distill/task.h"
#include "temper/models/decoder.h"
#include "temper/models/files/hf_config.h"
#include "temper/preference/losses.h"
#include "temper/preference/pair_task.h"
#include "temper/rl/algorithms/algorithm.h"
#include "temper/rl/observer.h"
#include "temper/train/router_step.h"
#include "temper/train/sft/sft.h"

namespace temper::cli {
namespace {

bool is_letter(char c) { return c >= 'a' && c <= 'z'; }

// A key, a path or a tag: "rl.beta", "OUTPUT_DIR/", "<think>", "\boxed".
bool looks_like_code(const std::string& word) {
  if (word.find_first_of("_<\\*{") != word.npos) return true;
  for (size_t i = 1; i + 1 < word.size(); ++i)
    if (word[i] == '.' && is_letter(word[i - 1]) && is_letter(word[i + 1])) return true;
  return false;
}

std::string escaped(const std::string& word) {
  std::string out;
  for (const char c : word) out += c == '|' ? "\\|" : std::string(1, c);
  return out;
}

}  // namespace

std::string code_of(const std::string& name) { return "`" + escaped(name) + "`"; }

std::string cell_of(const std::string& text) {
  std::string out;
  bool code = false;  // between backticks of the text
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(' ', begin), text.size());
    std::string word = text.substr(begin, end - begin);
    const auto ticks = std::count(word.begin(), word.end(), '`');
    if (code || ticks > 0 || !looks_like_code(word)) {
      out += escaped(word);
    } else {
      const size_t first = word.find_first_not_of('('), last = word.find_last_not_of(",.;:)");
      out += word.substr(0, first) + code_of(word.substr(first, last - first + 1)) +
             word.substr(last + 1);
    }
    code ^= ticks % 2 == 1;
    if (end < text.size()) out += ' ';
    begin = end + 1;
  }
  return out;
}

std::string with_paper(const std::string& help, const std::string& paper) {
  const size_t at = paper.find("arXiv ");
  if (at == paper.npos) return help;
  const size_t end = paper.find_first_not_of("0123456789.", at + 6);
  return help + " (" + paper.substr(at, end - at) + ")";
}

std::vector<ListTable> model_tables() {
  ListTable table{
      {},
      {"`model_type`", "models", "what is particular", "experts", "reward models", "paper"},
      {}};
  for (const auto& entry : models::families().list()) {
    const models::Family& family = entry.value;
    // As transformers' config class has it where config.json says nothing.
    const auto usual = models::HfConfig::parse({{"model_type", entry.name}}, entry.name);
    const size_t colon = entry.help.find(": ");
    table.rows.push_back({entry.name,
                          entry.help,
                          {code_of(entry.name), cell_of(entry.help.substr(0, colon)),
                           colon == entry.help.npos ? "" : cell_of(entry.help.substr(colon + 2)),
                           family.config(usual).experts > 0 ? "yes" : "",
                           family.sequence_classification ? "yes" : "", entry.paper}});
  }
  return {table};
}

namespace {

std::map<std::string, std::string> defaults_of(rl::Algorithm& algorithm) {
  std::map<std::string, std::string> values;
  const std::vector<std::string> unused = algorithm.unused_keys();
  for (const Field& field : Fields::of(algorithm))
    if (std::find(unused.begin(), unused.end(), field.name) == unused.end())
      values[field.name] = field.write().text;
  return values;
}

}  // namespace

std::vector<ListTable> algorithm_tables() {
  ListTable table{{}, {"`rl.algorithm`", "what it does", "defaults of `rl` unlike `grpo`'s"}, {}};
  const auto usual = defaults_of(*rl::algorithms().find("grpo")());
  for (const auto& entry : rl::algorithms().list()) {
    std::string own;
    for (const auto& [key, value] : defaults_of(*entry.value())) {
      const auto found = usual.find(key);
      if (value.empty() || (found != usual.end() && found->second == value)) continue;
      own += (own.empty() ? "" : ", ") + code_of(key + ": " + value);
    }
    table.rows.push_back({entry.name,
                          with_paper(entry.help, entry.paper),
                          {code_of(entry.name), cell_of(entry.help), own}});
  }
  return {table};
}

std::vector<ListTable> loss_tables() {
  ListTable table{{}, {"loss", "verb", "what it is"}, {}};
  const auto add = [&](const std::string& name, const std::string& verb, const std::string& help,
                       const std::string& paper = {}) {
    table.rows.push_back({name,
                          (verb == name ? "" : verb + ": ") + with_paper(help, paper),
                          {code_of(name), code_of(verb), cell_of(help)}});
  };
  add("sft", "sft", "negative log-likelihood of the supervised tokens");
  for (const auto& loss : preference::losses().list()) add(loss.name, "dpo", loss.help, loss.paper);
  add("orpo", "orpo", "negative log-likelihood of chosen plus the odds-ratio loss");
  for (const auto& strategy : distill::strategies().list())
    add(strategy.name, "distill", strategy.help, strategy.paper);
  add("reward", "reward", "-log sigmoid of the difference of two rewards (Bradley-Terry)");
  return {table};
}

namespace {

ListTable metric_table(const std::string& title, const std::vector<MetricInfo>& metrics) {
  ListTable table{title, {"name", "unit", "meaning", "healthy"}, {}};
  for (const MetricInfo& info : metrics) {
    table.rows.push_back(
        {info.name,
         info.help + (info.healthy.empty() ? "" : "; healthy: " + info.healthy),
         {code_of(info.name), info.unit, cell_of(info.help), cell_of(info.healthy)}});
    // The page says of all metrics by group at once what they are.
    if (info.name.starts_with("group_")) table.rows.back().cells.clear();
  }
  return table;
}

}  // namespace

std::vector<ListTable> metric_tables() {
  std::vector<ListTable> tables{
      metric_table("Every training verb", train::trainer_metrics()),
      metric_table("Mixtures of experts", train::RouterStep::metrics()),
      metric_table("Supervised fine-tuning", train::sft_metrics()),
      metric_table("Preferences and reward models", preference::pair_metrics()),
      metric_table("Distillation", distill::distill_metrics()),
      metric_table("Reinforcement learning", rl::rl_metrics())};
  for (const auto& entry : rl::algorithms().list())
    if (const auto own = entry.value()->metrics(); !own.empty())
      tables.push_back(metric_table("Of the algorithm " + entry.name, own));
  return tables;
}

namespace {

std::string synonym_line(const KeySynonym& synonym) {
  std::string line(synonym.key.empty() ? "no" : synonym.key);
  if (!synonym.note.empty())
    line += (synonym.key.empty() ? ": " : "; ") + std::string(synonym.note);
  return line;
}

}  // namespace

std::vector<ListTable> synonym_tables() {
  ListTable table{{}, {"elsewhere", "here"}, {}};
  for (const KeySynonym& synonym : key_synonyms())
    table.rows.push_back({std::string(synonym.name), synonym_line(synonym), {}});
  return {table};
}

ListTable peer_table(const Peer& peer) {
  use_key_synonyms(key_synonyms());
  ListTable table{{}, {std::string(peer.name), "here"}, {}};
  std::istringstream keys{std::string(peer.keys)};
  for (std::string key; std::getline(keys, key);)
    if (const KeySynonym* synonym = find_key_synonym(key))
      table.rows.push_back(
          {key, synonym_line(*synonym), {code_of(key), cell_of(synonym_line(*synonym))}});
  return table;
}

}  // namespace temper::cli
