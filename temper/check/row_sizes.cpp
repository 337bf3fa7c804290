#include "temper/check/row_sizes.h"

#include <xxhash.h>

#include <unordered_map>

namespace temper::checks {
namespace {

void add_to_key(uint64_t& key, const std::vector<int32_t>& values) {
  key = XXH3_64bits_withSeed(values.data(), values.size() * sizeof(int32_t), key + values.size());
}

// Rows whose images differ are different.
void add_to_key(uint64_t& key, const ImageSpans& images) {
  for (const ImageSpan& span : images)
    if (span.first == 0) {
      const std::string& digest = span.image->digest();
      key = XXH3_64bits_withSeed(digest.data(), digest.size(), key);
    }
}

using Places = std::unordered_map<uint64_t, RowSizes::Location>;

// Calls `visit` with every row that is not left out.
template <class Visit>
void each_size(const RowSizes& sizes, const Visit& visit) {
  for (size_t s = 0; s < sizes.of.size(); ++s)
    for (size_t r = 0; r < sizes.of[s].size(); ++r)
      if (sizes.of[s][r].tokens > 0)
        visit(sizes.of[s][r], RowSizes::Location{s, static_cast<int64_t>(r)});
}

template <class Visit>
void each_row(const RowSizes& sizes, const Visit& visit) {
  each_size(sizes, [&](const RowSize& size, RowSizes::Location place) { visit(size.key, place); });
}

constexpr size_t kLeastAsked = 2;  // tokens: a BOS alone is no prompt

uint64_t hash_of_asked(const std::vector<int32_t>& tokens, const ImageSpans& images) {
  if (tokens.size() < kLeastAsked) return 0;
  uint64_t key = 1;
  add_to_key(key, tokens);
  add_to_key(key, images);
  return key == 0 ? 1 : key;
}

// The first segment that follows this one; -1: none does.
int64_t child_of(const data::SftRow& row, int64_t segment) {
  for (size_t s = static_cast<size_t>(segment) + 1; s < row.segments.size(); ++s)
    if (row.segments[s].parent == segment) return static_cast<int64_t>(s);
  return -1;
}

}  // namespace

uint64_t asked_key_of(const data::SftRow& row) {
  std::vector<int32_t> asked;
  ImageSpans images;
  for (int64_t s = row.segments.empty() ? -1 : 0; s >= 0; s = child_of(row, s)) {
    const data::Segment& segment = row.segments[static_cast<size_t>(s)];
    for (size_t i = 0; i < segment.tokens.size(); ++i) {
      if (i < segment.labels.size() && segment.labels[i] >= 0) {
        append_spans(images, spans_within(segment.images, 0, static_cast<int64_t>(i)), 0);
        return hash_of_asked(asked, images);
      }
      asked.push_back(segment.tokens[i]);
    }
    append_spans(images, segment.images, 0);
  }
  return 0;
}

uint64_t asked_key_of(const data::PreferenceRow& row) {
  const data::Side side =
      row.has(data::Side::kChosen) ? data::Side::kChosen : data::Side::kRejected;
  const data::TokenPath asked = row.path(side, true);
  return hash_of_asked(asked.tokens, asked.images);
}

uint64_t asked_key_of(const data::PromptRow&) { return 0; }

namespace {

template <class Row>
const std::vector<int32_t>& tokens_of_root(const Row& row) {
  static const std::vector<int32_t> none;
  return row.segments.empty() ? none : row.segments[0].tokens;
}

}  // namespace

const std::vector<int32_t>& first_tokens(const data::SftRow& row) { return tokens_of_root(row); }

const std::vector<int32_t>& first_tokens(const data::PreferenceRow& row) {
  return tokens_of_root(row);
}

const std::vector<int32_t>& first_tokens(const data::PromptRow& row) { return row.tokens; }

uint64_t key_of(const data::SftRow& row) {
  uint64_t key = 0;
  for (const data::Segment& segment : row.segments) {
    key += static_cast<uint64_t>(segment.parent);
    add_to_key(key, segment.tokens);
    add_to_key(key, segment.labels);
    add_to_key(key, segment.images);
  }
  return key;
}

uint64_t key_of(const data::PreferenceRow& row) {
  uint64_t key = 0;
  for (const data::PreferenceRow::Segment& segment : row.segments) {
    key += static_cast<uint64_t>(segment.parent) * 4 + segment.chosen * 2 + segment.rejected;
    add_to_key(key, segment.tokens);
    add_to_key(key, segment.labels);
    add_to_key(key, segment.images);
  }
  return key;
}

uint64_t key_of(const data::PromptRow& row) {
  uint64_t key = 0;
  add_to_key(key, row.tokens);
  add_to_key(key, row.images);
  return key;
}

namespace {

template <class Row>
std::vector<const ImageSpans*> images_of_segments(const Row& row) {
  std::vector<const ImageSpans*> images;
  for (const auto& segment : row.segments) images.push_back(&segment.images);
  return images;
}

}  // namespace

std::vector<const ImageSpans*> images_of(const data::SftRow& row) {
  return images_of_segments(row);
}
std::vector<const ImageSpans*> images_of(const data::PreferenceRow& row) {
  return images_of_segments(row);
}
std::vector<const ImageSpans*> images_of(const data::PromptRow& row) { return {&row.images}; }

void ImageChecks::add(const std::vector<const ImageSpans*>& images) {
  for (const ImageSpans* spans : images) {
    {
      const std::lock_guard lock(mutex_);
      images_ += count_images(*spans);
      tokens_ += count_image_tokens(*spans);
    }
    for (const ImageSpan& span : *spans) {
      const auto is_new = [&] {
        const std::lock_guard lock(mutex_);
        return !decoded_.contains(span.image->digest());
      };
      if (!is_new()) continue;
      span.image->decode();
      const std::lock_guard lock(mutex_);  // only now: every row with a broken image is wrong
      decoded_.insert(span.image->digest());
    }
  }
}

void ImageChecks::put(RowSizes& sizes) const {
  sizes.images = images_;
  sizes.image_tokens = tokens_;
  sizes.different_images = std::ssize(decoded_);
}

std::vector<std::pair<RowSizes::Location, RowSizes::Location>> RowSizes::found_in(
    const RowSizes& others) const {
  Places first;
  each_row(*this, [&](uint64_t key, Location place) { first.emplace(key, place); });
  std::vector<std::pair<Location, Location>> found;
  each_row(others, [&](uint64_t key, Location place) {
    if (const auto it = first.find(key); it != first.end()) found.emplace_back(place, it->second);
  });
  return found;
}

std::vector<std::pair<RowSizes::Location, RowSizes::Location>> RowSizes::prompts_found_in(
    const RowSizes& others) const {
  Places first, asked;
  each_size(*this, [&](const RowSize& size, Location place) {
    first.emplace(size.key, place);
    if (size.asked != 0) asked.emplace(size.asked, place);
  });
  std::vector<std::pair<Location, Location>> found;
  each_size(others, [&](const RowSize& size, Location place) {
    const auto it = size.asked == 0 ? asked.end() : asked.find(size.asked);
    if (it != asked.end() && !first.contains(size.key)) found.emplace_back(place, it->second);
  });
  return found;
}

std::vector<std::pair<RowSizes::Location, RowSizes::Location>> RowSizes::repeated() const {
  Places first;
  std::vector<std::pair<Location, Location>> found;
  each_row(*this, [&](uint64_t key, Location place) {
    if (const auto [it, is_new] = first.emplace(key, place); !is_new)
      found.emplace_back(place, it->second);
  });
  return found;
}

int64_t RowSizes::longest() const {
  int64_t longest = 0;
  for (const auto& source : of)
    for (const RowSize& row : source) longest = std::max(longest, row.tokens);
  return longest;
}

int64_t RowSizes::longest_prompt() const {
  int64_t longest = 0;
  for (const std::vector<RowSize>& rows : of)
    for (const RowSize& row : rows) longest = std::max(longest, row.prompt);
  return longest;
}

int64_t RowSizes::longer_than(int64_t tokens) const {
  int64_t count = 0;
  for (const auto& source : of)
    count += std::count_if(source.begin(), source.end(),
                           [&](const RowSize& row) { return row.tokens > tokens; });
  return count;
}

std::vector<RowSize> drawn_rows(const data::RowOrder& order, const RowSizes& sizes, int64_t most) {
  std::vector<RowSize> drawn;
  data::LoaderState state;
  state.counts.assign(order.sources().size(), 0);
  for (int64_t tries = 0; static_cast<int64_t>(drawn.size()) < most && tries < 2 * most; ++tries) {
    const auto next = order.draw(state, false);
    if (!next) break;
    size_t s = 0;
    while (&order.rows_of(s) != next->file) ++s;
    const RowSize& size = sizes.of[s][static_cast<size_t>(next->row)];
    if (size.tokens > 0) drawn.push_back(size);
  }
  return drawn;
}

void plan_passes(std::span<const RowSize> units, int64_t batch, int64_t max_tokens, int64_t rows,
                 RunShape& run) {
  PassShape only, later;  // the largest pass that is its step's only one, or not the first
  int64_t steps = 0, tokens = 0;
  for (size_t begin = 0; begin < units.size(); begin += static_cast<size_t>(batch), ++steps) {
    const std::span<const RowSize> step =
        units.subspan(begin, std::min(static_cast<size_t>(batch), units.size() - begin));
    std::vector<int64_t> lengths;
    for (const RowSize& unit : step) {
      lengths.push_back(unit.tokens);
      tokens += unit.tokens;
    }
    for (const std::vector<size_t>& mine : data::split_rows(lengths, rows)) {
      std::vector<int64_t> my_lengths;
      for (const size_t i : mine) my_lengths.push_back(max_tokens > 0 ? lengths[i] : 1);
      const auto packed = data::pack_rows(my_lengths, std::max<int64_t>(max_tokens, 1));
      run.passes = std::max(run.passes, static_cast<int64_t>(packed.size()));
      for (size_t p = 0; p < packed.size(); ++p) {
        PassShape pass{0, 0, p == 0};
        for (const size_t i : packed[p]) {
          pass.tokens += step[mine[i]].tokens;
          pass.longest = std::max(pass.longest, step[mine[i]].tokens);
          pass.targets += step[mine[i]].targets;
        }
        PassShape& largest = p == 0 ? only : later;
        if (pass.tokens > largest.tokens) largest = pass;
      }
    }
  }
  run.largest.clear();
  for (const PassShape& pass : {only, later})
    if (pass.tokens > 0) run.largest.push_back(pass);
  run.step_tokens = steps > 0 ? tokens / steps : 0;
}

}  // namespace temper::checks
