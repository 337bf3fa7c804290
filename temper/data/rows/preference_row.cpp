#include "temper/data/rows/preference_row.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "temper/base/error.h"
#include "temper/data/images/row_images.h"
#include "temper/data/images/side_images.h"
#include "temper/data/read/source_format.h"
#include "temper/data/rows/preference_sides.h"
#include "temper/data/rows/row_fields.h"
#include "temper/data/rows/text_format.h"
#include "temper/text/chat/conversation.h"

namespace temper::data {
namespace {

// The row of supervised tuning that trains this completion.
Json sft_fields(const PreferenceFormat& format, const PreferenceSides& sides,
                const Json& completion, const char* name, const Json& tools,
                const std::string& where) {
  if (!sides.ids) {
    check<DataError>(sides.prompt.is_string() == completion.is_string(), where, ": `prompt` and `",
                     name, "` must both be text or both be messages");
    Json row = {{"prompt", sides.prompt}, {"completion", completion}};
    if (!tools.is_null()) row["tools"] = tools;
    return row;
  }
  std::vector<int32_t> tokens = token_ids(sides.prompt, "prompt_ids", format.vocabulary, where);
  std::vector<int32_t> labels(tokens.size(), kNotTrained);
  for (const int32_t id : token_ids(completion, name, format.vocabulary, where)) {
    tokens.push_back(id);
    labels.push_back(id);
  }
  return {{"input_ids", tokens}, {"labels", labels}};
}

// A side's tokens with labels, not cut.
TokenPath read_side(const PreferenceFormat& format, const PreferenceSides& sides,
                    const Json& completion, const char* name, const Json& tools,
                    const RowImages& images, const std::string& where) {
  SftFormat whole = format;
  whole.text_limit = tokens_needed(format);
  whole.max_length = INT64_MAX;
  bool truncated = false;
  SftRow row = *read_placed_row(whole, sft_fields(format, sides, completion, name, tools, where),
                                side_images(sides, completion, images), where, &truncated);
  check<DataError>(row.segments.size() == 1, where, ": `", name,
                   "` has several turns that the chat template gives different contexts; a side of "
                   "a pair is one text");
  check<DataError>(row.supervised() > 0, where, ": `", name, "` trains no token: ", row.untrained);
  Segment& all = row.segments[0];
  return {std::move(all.tokens), std::move(all.labels), std::move(all.images)};
}

size_t first_trained(const TokenPath& path) {
  const auto at =
      std::find_if(path.labels.begin(), path.labels.end(), [](int32_t l) { return l >= 0; });
  return static_cast<size_t>(at - path.labels.begin());
}

// Adds [begin, end) of the path as a segment; gives its index, or the parent's where it is empty.
int32_t add_part(PreferenceRow& row, const TokenPath& path, size_t begin, size_t end,
                 int32_t parent, PreferenceRow::Segment part) {
  if (begin >= end) return parent;
  const auto from = static_cast<std::ptrdiff_t>(begin), to = static_cast<std::ptrdiff_t>(end);
  part.parent = parent;
  part.tokens.assign(path.tokens.begin() + from, path.tokens.begin() + to);
  part.labels.assign(path.labels.begin() + from, path.labels.begin() + to);
  part.images = spans_within(path.images, from, to);
  row.segments.push_back(std::move(part));
  return static_cast<int32_t>(row.segments.size()) - 1;
}

// [begin, end) of the path: what is prompt, then what is not.
int32_t add_parts(PreferenceRow& row, const TokenPath& path, size_t begin, size_t end,
                  int32_t parent, bool chosen, bool rejected) {
  const size_t trained = std::clamp(first_trained(path), begin, end);
  parent = add_part(row, path, begin, trained, parent, {-1, chosen, rejected, true, {}, {}, {}});
  return add_part(row, path, trained, end, parent, {-1, chosen, rejected, false, {}, {}, {}});
}

// Where the images of two paths first differ.
size_t same_images(const TokenPath& a, const TokenPath& b) {
  size_t k = 0;
  while (k < a.images.size() && k < b.images.size() && a.images[k] == b.images[k]) ++k;
  int64_t first = INT64_MAX;
  for (const TokenPath* path : {&a, &b})
    if (k < path->images.size()) first = std::min(first, path->images[k].begin);
  return static_cast<size_t>(first);
}

// The tree of the sides; where their tokens, their images or what is trained of them first differ,
// they part.
PreferenceRow tree_of(const TokenPath* chosen, const TokenPath* rejected) {
  PreferenceRow row;
  if (!chosen || !rejected) {
    const TokenPath& only = chosen ? *chosen : *rejected;
    add_parts(row, only, 0, only.tokens.size(), -1, chosen != nullptr, rejected != nullptr);
    return row;
  }
  const size_t most =
      std::min({chosen->tokens.size(), rejected->tokens.size(), same_images(*chosen, *rejected)});
  size_t same = 0;
  while (same < most && chosen->tokens[same] == rejected->tokens[same] &&
         chosen->labels[same] == rejected->labels[same])
    ++same;
  const int32_t shared = add_parts(row, *chosen, 0, same, -1, true, true);
  add_parts(row, *chosen, same, chosen->tokens.size(), shared, true, false);
  add_parts(row, *rejected, same, rejected->tokens.size(), shared, false, true);
  return row;
}

// Cuts the path to `length` tokens; whether it was longer.
bool cut(TokenPath& path, int64_t length) {
  if (static_cast<int64_t>(path.tokens.size()) <= length) return false;
  path.images = spans_within(path.images, 0, length);
  path.tokens.resize(static_cast<size_t>(length));
  path.labels.resize(static_cast<size_t>(length));
  return true;
}

bool cuts_image(const TextFormat& format, const RowImages& images, const TokenPath& path) {
  const ImagePlaces places(format, images);
  return places.cuts_image(places.count(path.tokens));
}

double margin_of(const Json& row, const std::string& where) {
  if (!row.contains("margin") || row["margin"].is_null()) return 0;
  check<DataError>(row["margin"].is_number(), where, ": `margin` must be a number");
  return row["margin"].get<double>();
}

}  // namespace

bool PreferenceRow::has(Side side) const {
  return std::any_of(segments.begin(), segments.end(),
                     [side](const Segment& s) { return s.of(side); });
}

int64_t PreferenceRow::supervised(Side side) const {
  int64_t count = 0;
  for (const Segment& s : segments)
    for (size_t i = s.parent < 0; s.of(side) && i < s.labels.size(); ++i) count += s.labels[i] >= 0;
  return count;
}

int64_t PreferenceRow::num_tokens() const {
  int64_t count = 0;
  for (const Segment& s : segments)
    count += (s.chosen + s.rejected) * static_cast<int64_t>(s.tokens.size());
  return count;
}

int64_t PreferenceRow::num_computed() const {
  int64_t count = 0;
  for (const Segment& s : segments) count += static_cast<int64_t>(s.tokens.size());
  return count;
}

bool PreferenceRow::trains(int32_t token) const {
  return std::any_of(segments.begin(), segments.end(), [token](const Segment& s) {
    return std::find(s.labels.begin(), s.labels.end(), token) != s.labels.end();
  });
}

bool PreferenceRow::sides_differ() const {
  return std::any_of(segments.begin(), segments.end(),
                     [](const Segment& s) { return s.chosen != s.rejected; });
}

TokenPath PreferenceRow::path(Side side, bool prompt) const {
  TokenPath out;
  for (const Segment& s : segments) {
    if (!s.of(side) || s.prompt != prompt) continue;
    append_spans(out.images, s.images, std::ssize(out.tokens));
    out.tokens.insert(out.tokens.end(), s.tokens.begin(), s.tokens.end());
    out.labels.insert(out.labels.end(), s.labels.begin(), s.labels.end());
  }
  return out;
}

std::optional<PreferenceRow> read_preference_row(const PreferenceFormat& format, Json row,
                                                 const std::string& where, bool* truncated) {
  std::string group = group_of(format, row, where);
  rename_columns(row, format.columns, where);
  join_text_parts(row, format.chat.get(), where);
  prompt_as_message(format, row, where);
  answers_as_messages(format, row);
  PreferenceSides sides = preference_sides(row, format.unpaired, where);
  const RowImages images = place_in_sides(format, row, sides, where);
  const double margin = margin_of(row, where);
  const Json tools = tools_of(row);
  std::optional<TokenPath> chosen, rejected;
  const char* const suffix = sides.ids ? "_ids" : "";
  for (const auto& [completion, path, name] :
       {std::tuple{&sides.chosen, &chosen, "chosen"}, {&sides.rejected, &rejected, "rejected"}})
    if (!completion->is_null())
      *path = read_side(format, sides, *completion, (std::string(name) + suffix).c_str(), tools,
                        images, where);
  if (chosen && rejected)
    check<DataError>(chosen->tokens != rejected->tokens || chosen->images != rejected->images,
                     where,
                     ": `chosen` and `rejected` are the same tokens: such a pair prefers nothing");
  const RowImages chosen_images = side_images(sides, sides.chosen, images),
                  rejected_images = side_images(sides, sides.rejected, images);
  int64_t longest = 0;
  for (const auto* path : {&chosen, &rejected})
    if (*path) longest = std::max(longest, static_cast<int64_t>((*path)->tokens.size()));
  if (longest > format.max_length) {
    if (format.overlong == Overlong::kDrop) return std::nullopt;
    check_truncates(format, where, "", longest);
    for (auto* path : {&chosen, &rejected})
      if (*path) *truncated |= cut(**path, format.max_length);
    if ((chosen && cuts_image(format, chosen_images, *chosen)) ||
        (rejected && cuts_image(format, rejected_images, *rejected)))
      return std::nullopt;
  }
  PreferenceRow out = tree_of(chosen ? &*chosen : nullptr, rejected ? &*rejected : nullptr);
  out.group = std::move(group);
  out.margin = margin;
  if ((chosen && out.supervised(Side::kChosen) == 0) ||
      (rejected && out.supervised(Side::kRejected) == 0))
    return std::nullopt;
  return out;
}

Loader<PreferenceRow>::Read preference_reader(PreferenceFormat format) {
  return [format = std::move(format)](const RowOrder::Drawn& drawn, LoaderState& state) {
    bool truncated = false;
    const PreferenceFormat own = of_source(format, *drawn.file, drawn.row);
    const Json json = drawn.file->row(drawn.row);
    std::optional<PreferenceRow> row =
        read_preference_row(own, json, drawn.file->where(drawn.row), &truncated);
    if (!row) return row;
    add_notices(state, own, json, drawn);
    row->file = drawn.file;
    row->row = drawn.row;
    state.truncated += truncated;
    state.untrained += row->paired() && !row->sides_differ() && !format.equal_sides_train;
    state.with_eos += trains_end(format, *row);
    return row;
  };
}

}  // namespace temper::data
