#include "temper/distill/alignment.h"

#include <algorithm>
#include <map>
#include <unordered_map>

#include "temper/base/error.h"

namespace temper::distill {
namespace {

constexpr int32_t kAsText = -1;

// Token of the forest and its id, from the root to a leaf.
struct PathTokens {
  std::vector<int64_t> at;
  std::vector<int32_t> id;
};

PathTokens path_to(const Forest& forest, size_t leaf) {
  std::vector<size_t> segments;
  for (int64_t s = static_cast<int64_t>(leaf); s >= 0; s = forest.parent[static_cast<size_t>(s)])
    segments.push_back(static_cast<size_t>(s));
  PathTokens path;
  for (auto s = segments.rbegin(); s != segments.rend(); ++s)
    for (int64_t t = forest.segment_start[*s]; t < forest.segment_start[*s + 1]; ++t) {
      path.at.push_back(t);
      path.id.push_back(forest.tokens[static_cast<size_t>(t)]);
    }
  return path;
}

}  // namespace

std::vector<AlignedRun> align_ends(std::span<const int64_t> student_ends,
                                   std::span<const int64_t> teacher_ends, int64_t common) {
  std::vector<AlignedRun> runs;
  size_t s = 0, t = 0;
  AlignedRun next{0, 0, 0, 0};
  while (s < student_ends.size() && t < teacher_ends.size()) {
    const int64_t student = student_ends[s], teacher = teacher_ends[t];
    s += student <= teacher;
    t += teacher <= student;
    if (student != teacher || student > common) continue;
    next.student_end = static_cast<int64_t>(s);
    next.teacher_end = static_cast<int64_t>(t);
    runs.push_back(next);
    next = {next.student_end, 0, next.teacher_end, 0};
  }
  return runs;
}

// What the teacher reads for a path of the student's tokens.
struct TokenBridge::Read {
  std::vector<int32_t> tokens;   // the teacher's
  std::vector<AlignedRun> runs;  // of the path's tokens and of these
};

TokenBridge::TokenBridge(Vocabulary student, Vocabulary teacher, const std::string& where)
    : student_(std::move(student)), teacher_(std::move(teacher)) {
  for (const Vocabulary* side : {&student_, &teacher_})
    check<ConfigError>(
        side->tokenizer && side->tokenizer->decodes_in_parts(), where,
        ": expected tokenizers of both models that decode token by token, found ",
        side == &student_ ? "the student" : "the teacher",
        side->tokenizer ? " with one that decodes the text as a whole" : " without a tokenizer");
  special_.assign(static_cast<size_t>(student_.size), kAsText);
  for (int32_t id = 0; id < student_.size; ++id) {
    if (!student_.tokenizer->is_special(id)) continue;
    const auto same = teacher_.tokenizer->id_of(student_.tokenizer->token_of(id));
    if (same && *same < teacher_.size && teacher_.tokenizer->is_special(*same))
      special_[static_cast<size_t>(id)] = *same;
  }
  for (const int32_t id : student_.end_token_ids)
    if (id < student_.size && special_[static_cast<size_t>(id)] == kAsText &&
        !teacher_.end_token_ids.empty() && teacher_.end_token_ids.front() < teacher_.size)
      special_[static_cast<size_t>(id)] = teacher_.end_token_ids.front();
  match_tokens();
}

// Special tokens as align() reads them, others by the bytes that they add to a text that has begun;
// each id once.
void TokenBridge::match_tokens() {
  std::unordered_map<std::string, int32_t> by_bytes;
  const auto size = [](const Vocabulary& side) {
    return std::min<int64_t>(side.size, side.tokenizer->vocab_size());
  };
  for (int32_t id = 0; id < size(teacher_); ++id)
    if (const std::string bytes = teacher_.tokenizer->bytes_of(id); !bytes.empty())
      by_bytes.emplace(bytes, id);
  auto match = std::make_shared<ops::VocabularyMatch>();
  std::vector<bool> used(static_cast<size_t>(teacher_.size));
  const auto pair = [&](int32_t student, int32_t teacher) {
    if (used[static_cast<size_t>(teacher)]) return;
    used[static_cast<size_t>(teacher)] = true;
    match->student.push_back(student);
    match->teacher.push_back(teacher);
  };
  for (int32_t id = 0; id < student_.size; ++id) {
    if (special_[static_cast<size_t>(id)] != kAsText) {
      pair(id, special_[static_cast<size_t>(id)]);
      continue;
    }
    if (id >= size(student_)) continue;
    const auto same = by_bytes.find(student_.tokenizer->bytes_of(id));
    if (same != by_bytes.end()) pair(id, same->second);
  }
  match->complete(student_.size, teacher_.size);
  match_ = std::move(match);
}

// The text of a token, or the spelling of a special one.
std::string TokenBridge::bytes_in_run(int32_t id, bool first) const {
  return student_.tokenizer->is_special(id) ? student_.tokenizer->token_of(id)
                                            : student_.tokenizer->bytes_of(id, first);
}

// The teacher's tokens of the text. Where ordinary tokens of the student spell a special one of its
// own (data.control_tokens: text), that is ordinary text to the teacher, too.
std::vector<int32_t> TokenBridge::read_text(std::span<const int32_t> run,
                                            const std::string& text) const {
  std::string ordinary;
  for (const int32_t id : run)
    if (!student_.tokenizer->is_special(id)) ordinary += student_.tokenizer->bytes_of(id);
  const Tokenizer& theirs = *teacher_.tokenizer;
  if (!student_.tokenizer->control_token_in(ordinary)) return theirs.encode(text);
  return theirs.encode_first(theirs.quoted(text), SIZE_MAX, Tokenizer::Quotes::kMarked);
}

// A text between special tokens, which begins with the path's token `begin`. Where the teacher's
// tokenizer changes the text, what follows is not aligned.
void TokenBridge::read_run(std::span<const int32_t> run, int64_t begin, Read& read) const {
  std::string text, theirs;
  std::vector<int64_t> student_ends, teacher_ends;
  for (const int32_t id : run) {
    text += bytes_in_run(id, student_ends.empty());
    student_ends.push_back(static_cast<int64_t>(text.size()));
  }
  const std::vector<int32_t> tokens = read_text(run, text);
  for (const int32_t id : tokens) {
    theirs += teacher_.tokenizer->bytes_of(id, teacher_ends.empty());
    teacher_ends.push_back(static_cast<int64_t>(theirs.size()));
  }
  // A space that its tokenizer puts before every text.
  if (theirs.starts_with(' ') && !text.starts_with(' ')) {
    theirs.erase(0, 1);
    for (int64_t& end : teacher_ends) end -= end > 0;
  }
  const auto end = std::mismatch(text.begin(), text.end(), theirs.begin(), theirs.end()).first;
  const int64_t at = static_cast<int64_t>(read.tokens.size());
  for (const AlignedRun& r : align_ends(student_ends, teacher_ends, end - text.begin()))
    read.runs.push_back(
        {begin + r.student_begin, begin + r.student_end, at + r.teacher_begin, at + r.teacher_end});
  read.tokens.insert(read.tokens.end(), tokens.begin(), tokens.end());
}

TokenBridge::Read TokenBridge::read(std::span<const int32_t> tokens) const {
  Read read;
  read.tokens = teacher_.tokenizer->tokens_before_text();
  const std::vector<int32_t> before = student_.tokenizer->tokens_before_text();
  size_t next = 0;  // the teacher's own tokens stand for the student's
  if (tokens.size() >= before.size() && std::equal(before.begin(), before.end(), tokens.begin()))
    next = before.size();
  while (next < tokens.size()) {
    const size_t begin = next;
    while (next < tokens.size() && special_.at(static_cast<size_t>(tokens[next])) == kAsText)
      ++next;
    if (next > begin)
      read_run(tokens.subspan(begin, next - begin), static_cast<int64_t>(begin), read);
    if (next == tokens.size()) break;
    const int64_t student = static_cast<int64_t>(next),
                  teacher = static_cast<int64_t>(read.tokens.size());
    read.tokens.push_back(special_[static_cast<size_t>(tokens[next++])]);
    read.runs.push_back({student, student + 1, teacher, teacher + 1});
  }
  if (read.tokens.empty()) read.tokens.push_back(0);  // a model reads something
  return read;
}

std::shared_ptr<const Alignment> TokenBridge::align(const train::ForwardPass& pass) const {
  if (last_pass_ == pass.forest) return last_;
  const Forest& forest = *pass.forest;
  std::multimap<int64_t, int64_t> targets_of_row;  // in order
  for (int64_t m = 0; m < pass.num_targets(); ++m)
    targets_of_row.emplace(pass.row_M[static_cast<size_t>(m)], m);
  auto out = std::make_shared<Alignment>();
  for (size_t s = 0; s < forest.parent.size(); ++s) {
    if (forest.subtree_end[s] != static_cast<int64_t>(s) + 1) continue;  // no leaf
    const PathTokens path = path_to(forest, s);
    const Read found = read(path.id);
    // The target that is the path's token i; -1: it is none, or was one of an earlier path.
    const auto take = [&](int64_t i) -> int64_t {
      if (i == 0) return -1;
      const auto [first, last] = targets_of_row.equal_range(path.at[static_cast<size_t>(i) - 1]);
      for (auto it = first; it != last; ++it)
        if (pass.target_M[static_cast<size_t>(it->second)] == path.id[static_cast<size_t>(i)]) {
          const int64_t m = it->second;
          targets_of_row.erase(it);
          return m;
        }
      return -1;
    };
    std::vector<int32_t> labels(found.tokens.size(), -1);
    int64_t next = out->teacher.num_targets();  // the teacher's, in order
    for (const AlignedRun& run : found.runs) {
      std::vector<int64_t> mine;
      for (int64_t i = run.student_begin; i < run.student_end; ++i)
        if (const int64_t m = take(i); m >= 0) mine.push_back(m);
      const bool whole = static_cast<int64_t>(mine.size()) == run.student_end - run.student_begin;
      if (!whole || mine.empty() || run.teacher_begin == 0 || run.teacher_end == run.teacher_begin)
        continue;
      const int64_t span = out->num_spans();
      const auto add = [span](ops::SpanTokens& to, int64_t target, bool last) {
        if (last) return to.last.push_back(target);
        to.before.push_back(target);
        to.span_of_before.push_back(span);
      };
      for (int64_t j = run.teacher_begin; j < run.teacher_end; ++j) {
        labels[static_cast<size_t>(j)] = found.tokens[static_cast<size_t>(j)];
        add(out->teacher_spans, next++, j + 1 == run.teacher_end);
      }
      for (size_t i = 0; i < mine.size(); ++i)
        add(out->student_spans, mine[i], i + 1 == mine.size());
      out->aligned += static_cast<int64_t>(mine.size());
    }
    train::PackUnit unit;
    unit.segments.push_back({-1, found.tokens, labels});
    out->teacher.add(unit, 0);
  }
  last_pass_ = pass.forest;
  return last_ = std::move(out);
}

}  // namespace temper::distill
