#include "temper/data/tools/domains.h"

#include <algorithm>

#include "temper/base/config/yaml.h"
#include "temper/base/error.h"
#include "temper/base/file.h"
#include "temper/text/unicode.h"

namespace temper::data {
namespace {

constexpr size_t kMostText = size_t{32} << 10;  // bytes of the prompt, and of the answer
constexpr size_t kMostCues = 10'000;            // of a file of rules
constexpr int kBuiltinLeast = 2;

std::string_view beginning_of(std::string_view text) {
  if (text.size() <= kMostText) return text;
  return text.substr(0, valid_utf8_prefix(text.substr(0, kMostText)));
}

std::vector<DomainRule::Cue> read_cues(const YamlNode& rule, const char* key) {
  const YamlNode* const list = rule.find(key);
  std::vector<DomainRule::Cue> cues;
  if (!list || list->kind == YamlNode::Kind::kNull) return cues;
  check<ConfigError>(list->kind == YamlNode::Kind::kList, list->origin.str(), ": `", key,
                     "`: found ", list->found(), ", expected a list of texts");
  for (const YamlNode& item : list->items) {
    check<ConfigError>(item.kind == YamlNode::Kind::kScalar && !item.text.empty(),
                       item.origin.str(), ": `", key, "`: found ", item.found(),
                       ", expected a text");
    cues.push_back({item.text, 1});
  }
  return cues;
}

DomainRule read_rule(const YamlNode::Entry& entry) {
  const YamlNode& rule = entry.value;
  using Kind = YamlNode::Kind;
  check<ConfigError>(!entry.key.empty(), entry.origin.str(), ": a domain without a name");
  check<ConfigError>(rule.kind == Kind::kMap || rule.kind == Kind::kNull, entry.origin.str(), ": `",
                     entry.key, "`: found ", rule.found(),
                     ", expected {keywords: [..], patterns: [..]}");
  for (const YamlNode::Entry& member : rule.entries)
    check<ConfigError>(member.key == "keywords" || member.key == "patterns", member.origin.str(),
                       ": `", entry.key, ".", member.key, "`: expected `keywords` or `patterns`");
  return {entry.key, read_cues(rule, "keywords"), read_cues(rule, "patterns")};
}

}  // namespace

const DomainRules& DomainRules::builtin() {
  static const DomainRules rules(builtin_domain_rules(), kBuiltinLeast, "built-in domains");
  return rules;
}

DomainRules DomainRules::read(const std::string& path) {
  const YamlNode root = parse_yaml(read_file(path, size_t{16} << 20), path);
  check<ConfigError>(root.kind == YamlNode::Kind::kMap && !root.entries.empty(), path,
                     ": expected rules, {domain: {keywords: [..], patterns: [..]}}");
  std::vector<DomainRule> rules;
  size_t cues = 0;
  for (const YamlNode::Entry& entry : root.entries) {
    rules.push_back(read_rule(entry));
    cues += rules.back().keywords.size() + rules.back().patterns.size();
  }
  check<ConfigError>(cues > 0, path, ": no domain has keywords or patterns");
  check<ConfigError>(cues <= kMostCues, path, ": ", cues, " keywords and patterns; at most ",
                     kMostCues, " are supported");
  try {
    return DomainRules(std::move(rules), 1, path);
  } catch (const DataError& e) {
    throw ConfigError(e.what());
  }
}

DomainRules::DomainRules(std::vector<DomainRule> rules, int least, const std::string& where)
    : least_(least), fallback_(rules.size()) {
  for (size_t domain = 0; domain < rules.size(); ++domain) {
    const DomainRule& rule = rules[domain];
    const std::string place = str(where, ": `", rule.name, "`");
    names_.push_back(rule.name);
    if (rule.keywords.empty() && rule.patterns.empty()) fallback_ = std::min(fallback_, domain);
    for (const DomainRule::Cue& cue : rule.keywords) add_keyword(cue, domain, place);
    for (const DomainRule::Cue& cue : rule.patterns)
      patterns_.push_back({Regex(cue.text, place), domain, cue.weight});
  }
  if (fallback_ < rules.size()) return;
  const auto found = std::find(names_.begin(), names_.end(), "other");
  fallback_ = static_cast<size_t>(found - names_.begin());
  if (found == names_.end()) names_.emplace_back("other");
}

void DomainRules::add_keyword(const DomainRule::Cue& cue, size_t domain, const std::string& where) {
  const bool is_beginning = cue.text.ends_with('*');
  const Words words(cue.text);
  check<DataError>(!words.all().empty(), where, ": the keyword `", cue.text, "` has no word");
  Phrase phrase{{}, is_beginning, domain, cue.weight, cues_++};
  for (const std::string_view word : words.all()) phrase.words.emplace_back(word);
  const std::string first = phrase.words[0];
  if (is_beginning && phrase.words.size() == 1) {
    const auto at =
        std::lower_bound(beginning_lengths_.begin(), beginning_lengths_.end(), first.size());
    if (at == beginning_lengths_.end() || *at != first.size())
      beginning_lengths_.insert(at, first.size());
  }
  by_first_word_[first].push_back(std::move(phrase));
}

void DomainRules::count_phrases(const Words& words, std::vector<bool>& seen,
                                std::vector<int>& scores) const {
  const auto& all = words.all();
  std::string first;
  const auto look_up = [&](size_t at, std::string_view beginning) {
    first = beginning;
    const auto found = by_first_word_.find(first);
    if (found == by_first_word_.end()) return;
    const bool is_whole = beginning.size() == all[at].size();
    for (const Phrase& phrase : found->second) {
      const size_t size = phrase.words.size();
      if (seen[phrase.number] || at + size > all.size()) continue;
      if (!is_whole && !(size == 1 && phrase.is_beginning)) continue;
      bool same = true;
      for (size_t i = 1; i < size && same; ++i)
        same = i + 1 == size && phrase.is_beginning ? all[at + i].starts_with(phrase.words[i])
                                                    : all[at + i] == phrase.words[i];
      if (!same) continue;
      seen[phrase.number] = true;
      scores[phrase.domain] += phrase.weight;
    }
  };
  for (size_t at = 0; at < all.size(); ++at) {
    look_up(at, all[at]);
    for (const size_t length : beginning_lengths_) {
      if (length >= all[at].size()) break;
      look_up(at, all[at].substr(0, length));
    }
  }
}

size_t DomainRules::domain_of(const RowTexts& texts, const std::string& where) const {
  const std::string_view prompt = beginning_of(texts.prompt), answer = beginning_of(texts.answer);
  std::vector<bool> seen(cues_);
  std::vector<int> scores(names_.size());
  for (const std::string_view text : {prompt, answer}) count_phrases(Words(text), seen, scores);
  for (const Pattern& pattern : patterns_) {
    Regex::Match match{};
    try {
      if (pattern.regex.find(prompt, 0, match) || pattern.regex.find(answer, 0, match))
        scores[pattern.domain] += pattern.weight;
    } catch (const DataError& e) {
      throw DataError(where + ": " + e.what());
    }
  }
  const auto best = std::max_element(scores.begin(), scores.end());
  return *best >= least_ ? static_cast<size_t>(best - scores.begin()) : fallback_;
}

}  // namespace temper::data
