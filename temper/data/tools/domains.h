// Which domain a row belongs to: mathematics, coding, ..., or those of a file of rules.
#pragma once

#include <string>
#include <unordered_map>
#include <vector>

#include "temper/data/rows/row_texts.h"
#include "temper/text/regex.h"

namespace temper::data {

// What makes a row one of a domain.
struct DomainRule {
  struct Cue {
    std::string text;
    int weight = 1;
  };
  std::string name;
  // Words or phrases, compared as Words (row_texts.h) makes them: "square root", "equation*" with
  // all that begin so.
  std::vector<Cue> keywords;
  std::vector<Cue> patterns;  // regular expressions (text/regex.h)
};

// A row's score in a domain is the sum of the weights of its keywords and patterns that occur in
// the row, each counted once; the highest score is the row's domain, of equal ones the first.
class DomainRules {
 public:
  // mathematics, coding, science, creative, summarization, general.
  static const DomainRules& builtin();
  // A file of YAML or JSON: {domain: {keywords: [..], patterns: [..]}}, every weight 1. Throws
  // ConfigError naming the file and line.
  static DomainRules read(const std::string& path);
  // Rows with a score below `least` belong to the first domain without keywords and patterns, or,
  // where there is none, to `other`, which is then the last one. Throws DataError that begins with
  // `where` for what is no keyword or regular expression.
  DomainRules(std::vector<DomainRule> rules, int least, const std::string& where);

  const std::vector<std::string>& names() const { return names_; }
  // The number of the row's domain among names(). Of the prompt and of the answer the first 32 KiB
  // are looked at. Throws DataError that begins with `where` where a pattern takes too many steps.
  size_t domain_of(const RowTexts& texts, const std::string& where) const;

 private:
  struct Phrase {
    std::vector<std::string> words;
    bool is_beginning;  // of the last word
    size_t domain;
    int weight;
    size_t number;  // of the cue
  };
  struct Pattern {
    Regex regex;
    size_t domain;
    int weight;
  };
  void add_keyword(const DomainRule::Cue& cue, size_t domain, const std::string& where);
  void count_phrases(const Words& words, std::vector<bool>& seen, std::vector<int>& scores) const;

  std::vector<std::string> names_;
  int least_;
  size_t fallback_ = 0;
  std::unordered_map<std::string, std::vector<Phrase>> by_first_word_;
  std::vector<size_t> beginning_lengths_;  // of first words that stand for all that begin so
  std::vector<Pattern> patterns_;
  size_t cues_ = 0;
};

// The rules that builtin() is made of.
std::vector<DomainRule> builtin_domain_rules();

}  // namespace temper::data
