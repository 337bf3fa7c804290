#include "temper/text/tokenizer/added_tokens.h"

#include <algorithm>

#include "temper/base/error.h"
#include "temper/text/unicode.h"

namespace temper {

TokenTrie::TokenTrie() { roots_.fill(kNone); }

uint32_t TokenTrie::child_of(uint32_t node, unsigned char byte) const {
  uint32_t child = nodes_[node].child;
  while (child != kNone && nodes_[child].byte != byte) child = nodes_[child].sibling;
  return child;
}

void TokenTrie::add(std::string_view text, uint32_t value) {
  const auto new_node = [&](unsigned char byte) {
    nodes_.push_back({});
    nodes_.back().byte = byte;
    return static_cast<uint32_t>(nodes_.size() - 1);
  };
  const auto first = static_cast<unsigned char>(text[0]);
  if (roots_[first] == kNone) roots_[first] = new_node(first);
  uint32_t node = roots_[first];
  for (const char c : text.substr(1)) {
    const auto byte = static_cast<unsigned char>(c);
    uint32_t child = child_of(node, byte);
    if (child == kNone) {
      child = new_node(byte);
      nodes_[child].sibling = nodes_[node].child;
      nodes_[node].child = child;
    }
    node = child;
  }
  nodes_[node].value = value;
}

bool TokenTrie::find(std::string_view text, size_t from, Match& match) const {
  for (size_t begin = from; begin < text.size(); ++begin) {
    uint32_t node = roots_[static_cast<unsigned char>(text[begin])];
    bool found = false;
    for (size_t end = begin + 1; node != kNone; ++end) {
      if (nodes_[node].value != kNone) {
        match = {begin, end, nodes_[node].value};
        found = true;
      }
      if (end == text.size()) break;
      node = child_of(node, static_cast<unsigned char>(text[end]));
    }
    if (found) return true;
  }
  return false;
}

AddedTokens::AddedTokens(const JsonField& field, const Vocabulary& vocabulary,
                         const Normalizer& normalizer) {
  auto next_id = static_cast<int32_t>(vocabulary.size());
  for (const JsonField& item : field.items()) {
    AddedToken token;
    token.content = item["content"].text();
    token.single_word = item["single_word"].flag();
    token.lstrip = item["lstrip"].flag();
    token.rstrip = item["rstrip"].flag();
    token.normalized = item["normalized"].flag();
    token.special = item["special"].flag();
    item["id"].integer(0, Vocabulary::kMaxId);
    if (token.content.empty()) continue;
    // The file's id may be outdated: the vocabulary's id counts.
    const AddedToken* known = find(token.content);
    const auto in_vocabulary = vocabulary.find(token.content);
    token.id = known ? known->id : in_vocabulary ? *in_vocabulary : next_id++;
    check<DataError>(token.id <= Vocabulary::kMaxId, item.where(), ": more tokens than ",
                     Vocabulary::kMaxId);
    bool at_start = true;
    token.decoded = token.normalized ? normalizer.apply(token.content, at_start) : token.content;
    check<DataError>(!token.decoded.empty(), item.where(), ": \"", token.content,
                     "\" is empty when normalized");
    add(std::move(token));
  }
  for (uint32_t i = 0; i < tokens_.size(); ++i)
    (tokens_[i].normalized ? normalized_ : raw_).add(tokens_[i].decoded, i);
}

void AddedTokens::add(AddedToken token) {
  if (token.special) special_.insert(token.content);
  const auto [at, is_new] = by_id_.emplace(token.id, static_cast<uint32_t>(tokens_.size()));
  by_content_[token.content] = at->second;
  if (is_new) {
    tokens_.push_back(std::move(token));
  } else {
    tokens_[at->second] = std::move(token);
  }
}

const AddedToken* AddedTokens::find(int32_t id) const {
  const auto found = by_id_.find(id);
  return found == by_id_.end() ? nullptr : &tokens_[found->second];
}

const AddedToken* AddedTokens::find(std::string_view content) const {
  const auto found = by_content_.find(std::string(content));
  return found == by_content_.end() ? nullptr : &tokens_[found->second];
}

int32_t AddedTokens::end_id() const {
  int32_t end = 0;
  for (const AddedToken& token : tokens_) end = std::max(end, token.id + 1);
  return end;
}

std::vector<AddedTokens::Spelled> AddedTokens::special_in(std::string_view text,
                                                          size_t most) const {
  std::vector<Spelled> all;
  for (const TokenTrie* trie : {&raw_, &normalized_}) {
    TokenTrie::Match match{};
    size_t found = 0;
    for (size_t at = 0; found < most && !trie->empty() && trie->find(text, at, match);
         at = match.end) {
      const AddedToken& token = tokens_[match.value];
      if (!token.special) continue;
      all.push_back({match.begin, match.end, token.id});
      ++found;
    }
  }
  std::stable_sort(all.begin(), all.end(),
                   [](const Spelled& a, const Spelled& b) { return a.begin < b.begin; });
  size_t end = 0, kept = 0;
  for (const Spelled& spelled : all) {
    if (kept == most || spelled.begin < end) continue;
    end = spelled.end;
    all[kept++] = spelled;
  }
  all.resize(kept);
  return all;
}

void AddedTokens::split(std::string_view text, bool raw, const Part& part,
                        std::string_view mark) const {
  const TokenTrie& trie = raw ? raw_ : normalized_;
  size_t done = 0;
  if (!trie.empty()) {
    TokenTrie::Match match{};
    for (size_t from = 0; trie.find(text, from, match); from = match.end) {
      const AddedToken& token = tokens_[match.value];
      size_t begin = match.begin, end = match.end;
      if (!mark.empty() && text.substr(0, begin).ends_with(mark)) continue;
      if (token.single_word) {
        size_t before = begin, behind = end;
        if (begin > 0 && is_word_char(previous_char(text, before))) continue;
        if (end < text.size() && is_word_char(next_char(text, behind))) continue;
      }
      if (token.lstrip) {
        for (size_t at = begin; at > done && is_white_space(previous_char(text, at));) begin = at;
      }
      if (token.rstrip) {
        for (size_t at = end; at < text.size() && is_white_space(next_char(text, at));) end = at;
      }
      if (done < begin) part(-1, done, begin);
      part(token.id, begin, end);
      done = end;
    }
  }
  if (done < text.size()) part(-1, done, text.size());
}

}  // namespace temper
