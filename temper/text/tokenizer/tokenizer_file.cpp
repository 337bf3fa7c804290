#include "temper/text/tokenizer/tokenizer_file.h"

#include <algorithm>
#include <functional>
#include <vector>

#include "temper/base/error.h"

namespace temper {
namespace {

constexpr size_t kMaxDepth = 32;
// members of one object; finding one takes time in proportion to their number
constexpr size_t kMaxMembers = 4096;

// Receives the events of nlohmann's parser.
class TokenizerFileReader {
 public:
  TokenizerFileReader(TokenizerFile& file, const std::string& where) : file_(file), where_(where) {}

  bool null() { return value(nullptr); }
  bool boolean(bool b) { return value(b); }
  bool number_integer(int64_t n) { return value(n); }
  bool number_unsigned(uint64_t n) { return part_ == Part::kVocabulary ? token_id(n) : value(n); }
  bool number_float(double x, const std::string&) { return value(x); }
  bool binary(std::vector<uint8_t>&) { return false; }
  bool string(std::string& s) {
    return part_ == Part::kMerges ? merge_text(s) : value(std::move(s));
  }

  bool key(std::string& name) {
    if (part_ == Part::kRest) {
      check<DataError>(stack_.back()->size() < kMaxMembers, where_, ": an object with more than ",
                       kMaxMembers, " members");
      if (stack_.size() == 1) section_ = name;
    }
    key_ = std::move(name);
    return true;
  }

  bool start_object(size_t) {
    if (part_ == Part::kRest && in_model("vocab")) {
      part_ = Part::kVocabulary;
      file_.has_vocabulary = true;
      return true;
    }
    return open(Json::object());
  }
  bool end_object() { return close(); }

  bool start_array(size_t) {
    if (part_ == Part::kRest && in_model("merges")) {
      part_ = Part::kMerges;
      file_.has_merges = true;
      return true;
    }
    // A merge as ["a", "b"].
    if (part_ == Part::kMerges && !in_pair_) {
      in_pair_ = true;
      pair_.clear();
      return true;
    }
    if (part_ == Part::kRest && in_model("vocab")) {
      part_ =
          Part::kSkipped;  // Unigram's list of pieces: the model's type is refused later, by name
      skip_depth_ = 1;
      return true;
    }
    return open(Json::array());
  }
  bool end_array() {
    if (!in_pair_) return close();
    in_pair_ = false;
    if (pair_.size() != 2) bad_merge();
    file_.merges.add(pair_[0], pair_[1]);
    return true;
  }

  template <class Exception>
  bool parse_error(size_t, const std::string&, const Exception& e) {
    const std::string what = e.what();
    const size_t end = what.find("] ");
    throw DataError(
        str(where_, ": not valid JSON: ", end == what.npos ? what : what.substr(end + 2)));
  }

 private:
  enum class Part { kRest, kVocabulary, kMerges, kSkipped };

  bool in_model(std::string_view name) const {
    return stack_.size() == 2 && section_ == "model" && stack_.back()->is_object() && key_ == name;
  }

  [[noreturn]] void bad_merge() const {
    throw DataError(str(where_, ": model.merges[", file_.merges.size(),
                        "]: two tokens expected, as \"a b\" or [\"a\", \"b\"]"));
  }

  // Puts a value where it belongs in the document; the parser keeps objects and arrays on the stack
  // open until they end, so pointers to them stay good.
  Json& place(Json&& v) {
    if (stack_.empty()) return file_.rest = std::move(v);
    Json& parent = *stack_.back();
    if (parent.is_array()) {
      parent.push_back(std::move(v));
      return parent.back();
    }
    return parent[key_] = std::move(v);
  }

  template <class T>
  bool value(T&& v) {
    if (part_ == Part::kSkipped) return true;
    if (part_ == Part::kMerges) bad_merge();
    check<DataError>(part_ == Part::kRest, where_, ": model.vocab[\"", key_,
                     "\"]: an id expected: an integer from 0 to ", Vocabulary::kMaxId);
    place(Json(std::forward<T>(v)));
    return true;
  }

  bool token_id(uint64_t id) {
    check<DataError>(id <= static_cast<uint64_t>(Vocabulary::kMaxId), where_, ": model.vocab[\"",
                     key_, "\"]: id ", id, "; at most ", Vocabulary::kMaxId, " is supported");
    file_.vocabulary.add(key_, static_cast<int32_t>(id));
    return true;
  }

  bool merge_text(std::string& s) {
    if (in_pair_) {
      if (pair_.size() == 2) bad_merge();
      pair_.push_back(std::move(s));
      return true;
    }
    if (s.starts_with("#version")) return true;
    const size_t space = s.find(' ');
    if (space == s.npos || s.find(' ', space + 1) != s.npos) bad_merge();
    file_.merges.add(std::string_view(s).substr(0, space), std::string_view(s).substr(space + 1));
    return true;
  }

  bool open(Json&& empty) {
    if (part_ == Part::kSkipped) {
      ++skip_depth_;
      return true;
    }
    if (part_ != Part::kRest) return value(nullptr);  // neither takes a value of this kind
    check<DataError>(stack_.size() < kMaxDepth, where_, ": nested deeper than ", kMaxDepth,
                     " levels");
    stack_.push_back(&place(std::move(empty)));
    return true;
  }

  bool close() {
    if (part_ == Part::kRest) {
      stack_.pop_back();
    } else if (part_ != Part::kSkipped || --skip_depth_ == 0) {
      part_ = Part::kRest;
    }
    return true;
  }

  TokenizerFile& file_;
  const std::string& where_;
  Part part_ = Part::kRest;
  std::vector<Json*> stack_;
  std::string section_;  // the key in the outermost object
  std::string key_;
  bool in_pair_ = false;
  std::vector<std::string> pair_;
  size_t skip_depth_ = 0;
};

}  // namespace

namespace {

// Behind the string that begins at text[at].
size_t end_of_string(std::string_view text, size_t at) {
  for (++at; at < text.size() && text[at] != '"'; ++at)
    if (text[at] == '\\') ++at;
  return at + 1;
}
size_t skip_blanks(std::string_view text, size_t at) {
  return std::min(text.find_first_not_of(" \t\r\n", at), text.size());
}

// Behind the object or array that begins at text[at]. `member`, where it is set, gets the place of
// each member's value by its key, as it is written with its quotes.
using Member = std::function<void(std::string_view key, size_t value)>;
size_t end_of_container(std::string_view text, size_t at, const Member& member = {}) {
  int depth = 0;
  while (at < text.size()) {
    const char c = text[at];
    if (c == '"') {
      const size_t end = end_of_string(text, at), next = skip_blanks(text, end);
      if (member && depth == 1 && next < text.size() && text[next] == ':')
        member(text.substr(at, end - at), skip_blanks(text, next + 1));
      at = end;
      continue;
    }
    ++at;
    if (c == '{' || c == '[') ++depth;
    if ((c == '}' || c == ']') && --depth == 0) return at;
  }
  return text.size();
}

}  // namespace

std::string with_added_tokens(std::string_view text, const std::vector<std::string>& tokens,
                              int32_t first_id) {
  std::string items;
  for (const std::string& token : tokens) {
    const Json item = {{"id", first_id++}, {"content", token}, {"single_word", false},
                       {"lstrip", false},  {"rstrip", false},  {"normalized", true},
                       {"special", false}};
    items += (items.empty() ? "" : ",\n    ") + dump_json(item);
  }
  const size_t begin = skip_blanks(text, 0);
  size_t list = text.npos;  // of the last such member, which counts
  end_of_container(text, begin, [&](std::string_view key, size_t value) {
    if (key == "\"added_tokens\"") list = value;
  });
  std::string out(text);
  if (list == text.npos)
    out.insert(begin + 1, "\n  \"added_tokens\": [\n    " + items + "\n  ],");
  else if (text[list] == 'n')
    out.replace(list, 4, "[\n    " + items + "\n  ]");  // null
  else {
    const size_t close = end_of_container(text, list) - 1;
    size_t last = close;  // behind the last token
    while (std::string_view(" \t\r\n").find(text[last - 1]) != text.npos) --last;
    out.insert(last, (text[last - 1] == '[' ? "\n    " : ",\n    ") + items);
  }
  return out;
}

TokenizerFile parse_tokenizer_file(std::string_view text, const std::string& where) {
  TokenizerFile file;
  TokenizerFileReader reader(file, where);
  Json::sax_parse(text.begin(), text.end(), &reader);
  return file;
}

}  // namespace temper
