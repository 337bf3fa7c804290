#include "temper/data/rows/sft_row.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "temper/base/error.h"
#include "temper/data/images/image_fields.h"
#include "temper/data/images/row_images.h"
#include "temper/data/rows/row_fields.h"
#include "temper/text/chat/template_checks.h"
#include "temper/text/tokenizer/special_tokens.h"

namespace temper::data {
namespace {

// What a row trains, before it is cut.
struct Paths {
  std::vector<TokenPath> paths;
  bool turn_by_turn = false;
  const char* untrained = "";  // the reason, where the format knows one
};

TokenPath path_of(TokenizedConversation c) {
  return {std::move(c.tokens), std::move(c.labels), {}};
}

Paths read_ids(const SftFormat& format, const Json& row, const RowImages& images,
               const std::string& where) {
  TokenPath out;
  out.tokens = token_ids(row["input_ids"], "input_ids", format.vocabulary, where);
  ImagePlaces(format, images).check_all(out.tokens);
  out.labels = row.contains("labels")
                   ? token_ids(row["labels"], "labels", format.vocabulary, where, -100)
                   : out.tokens;
  check<DataError>(out.labels.size() == out.tokens.size(), where, ": `labels` has ",
                   out.labels.size(), " entries, `input_ids` ", out.tokens.size());
  return {{std::move(out)}, false, "its labels train no token"};
}

size_t text_limit(const SftFormat& format) {
  return format.text_limit > 0 ? format.text_limit : tokens_needed(format);
}

Paths read_text(const SftFormat& format, const Json& row, const RowImages& images,
                const std::string& where) {
  check<DataError>(row["text"].is_string(), where, ": `text` must be text");
  TokenPath out;
  const Json text = quoted(format, row["text"]);
  out.tokens =
      encode_text(tokenizer_of(format, where), with_images(format, text.get<std::string>(), images),
                  text_limit(format), quotes_of(format));
  if (format.eos && (out.tokens.empty() || out.tokens.back() != *format.eos))
    out.tokens.push_back(*format.eos);
  out.labels = out.tokens;
  return {{std::move(out)}, false, "its text is a single token, which nothing predicts"};
}

Paths paths_of(TrainedConversation c, const char* untrained) {
  Paths out{{}, c.turn_by_turn, untrained};
  for (TokenizedConversation& path : c.paths) out.paths.push_back(path_of(std::move(path)));
  return out;
}

ConversationOptions conversation_options(const SftFormat& format) {
  return {.train_on = format.train_on,
          .mode = format.conversation,
          .limit = tokens_needed(format),
          .quotes = quotes_of(format)};
}

void check_messages(const Json& list, const char* field, const std::string& where) {
  check<DataError>(list.is_array(), where, ": `", field, "` must be a list of messages",
                   list.is_string() ? ", found text; is it the JSON text of one?" : "");
  check<DataError>(!list.empty(), where, ": `", field, "` is empty, expected at least one message");
}

Paths read_messages(const SftFormat& format, const Json& row, const std::string& where) {
  check_messages(row["messages"], "messages", where);
  const Tokenizer& tokenizer = tokenizer_of(format, where);
  const ChatTemplate& chat = chat_of(format, where);
  const Json messages = with_system_prompt(format, quoted(format, row["messages"])),
             tools = quoted(format, tools_of(row));
  check_roles(chat, messages, tools);
  return paths_of(
      tokenize_conversation(tokenizer, chat, messages, tools, conversation_options(format)),
      "the assistant says nothing in it that is trained");
}

Paths read_prompt_completion(const SftFormat& format, const Json& row, const RowImages& images,
                             const std::string& where) {
  const Json prompt = quoted(format, row["prompt"]), completion = quoted(format, row["completion"]);
  const char* const untrained = "its completion trains no token";
  if (prompt.is_string() && completion.is_string())
    return {{path_of(tokenize_prompt_completion(
                tokenizer_of(format, where), with_images(format, prompt.get<std::string>(), images),
                completion.get_ref<const std::string&>(), format.train_on, format.eos,
                text_limit(format), quotes_of(format)))},
            false,
            untrained};
  check<DataError>(prompt.is_array() && completion.is_array(), where,
                   ": `prompt` and `completion` must both be text or both be messages");
  check_messages(completion, "completion", where);
  const Tokenizer& tokenizer = tokenizer_of(format, where);
  const ChatTemplate& chat = chat_of(format, where);
  const Json messages = with_system_prompt(format, prompt), tools = quoted(format, tools_of(row));
  check_roles(chat, messages, tools);
  check_roles(chat, completion, tools);
  return paths_of(tokenize_prompt_completion(tokenizer, chat, messages, completion, tools,
                                             conversation_options(format)),
                  untrained);
}

Paths read_row(const SftFormat& format, const Json& row, const RowImages& images,
               const std::string& where) {
  if (row.contains("input_ids")) return read_ids(format, row, images, where);
  if (row.contains("messages")) return read_messages(format, row, where);
  if (row.contains("prompt") && row.contains("completion"))
    return read_prompt_completion(format, row, images, where);
  if (row.contains("text")) return read_text(format, row, images, where);
  throw DataError(temper::str(
      where, ": the row has ", field_names(row),
      "; expected messages, prompt and completion, text, or input_ids; "
      "data.columns (--columns) renames fields, as in {prompt: question, completion: answer}"));
}

Paths read_named(const SftFormat& format, const Json& row, const RowImages& images,
                 const std::string& where) {
  try {
    return read_row(format, row, images, where);
  } catch (const DataError& e) {
    // Templates and tokenizers do not know the row.
    throw DataError(std::string(e.what()).starts_with(where) ? e.what() : where + ": " + e.what());
  }
}

bool trains(const TokenPath& path) {
  return path.labels.size() > 1 && std::any_of(path.labels.begin() + 1, path.labels.end(),
                                               [](int32_t label) { return label >= 0; });
}

// Cuts each path to `length` tokens; whether it was longer.
bool cut(std::vector<TokenPath>& paths, int64_t length) {
  bool any = false;
  for (TokenPath& path : paths) {
    if (static_cast<int64_t>(path.tokens.size()) <= length) continue;
    path.tokens.resize(static_cast<size_t>(length));
    path.labels.resize(static_cast<size_t>(length));
    any = true;
  }
  return any;
}

// Image tokens are not trained.
void hide_images(const ImagePlaces& places, std::vector<TokenPath>& paths) {
  for (TokenPath& path : paths)
    for (size_t i = 0; i < path.tokens.size(); ++i)
      if (places.is_image(path.tokens[i])) path.labels[i] = kNotTrained;
}

bool cuts_image(const ImagePlaces& places, const std::vector<TokenPath>& paths) {
  return std::any_of(paths.begin(), paths.end(), [&](const TokenPath& path) {
    return places.cuts_image(places.count(path.tokens));
  });
}

// All paths of a row have its images in the same order, each as far as it goes.
void find_images(const ImagePlaces& places, SftRow& row) {
  std::vector<int64_t> before;  // of each segment, image tokens of its path that precede it
  for (Segment& s : row.segments) {
    before.push_back(0);
    if (s.parent >= 0) {
      const auto parent = static_cast<size_t>(s.parent);
      before.back() = before[parent] + count_image_tokens(row.segments[parent].images);
    }
    s.images = places.spans(s.tokens, before.back());
  }
}

// The fields with the row's conversation, where it is one.
std::vector<const char*> conversation_fields(const Json& row) {
  if (row.contains("input_ids")) return {};
  if (row.contains("messages")) return {"messages"};
  return {"prompt", "completion"};
}

// The tree of the paths that train something, or the first path alone where none does.
SftRow tree_of_trained(std::vector<TokenPath> paths) {
  const auto end = std::stable_partition(paths.begin(), paths.end(), trains);
  paths.erase(end == paths.begin() ? end + 1 : end, paths.end());
  return tree_of(paths);
}

}  // namespace

void SftFormat::set_ends(const std::string& directory, std::vector<int32_t> eos_ids) {
  ends = std::move(eos_ids);
  if (!ends.empty()) eos = ends[0];
  if (tokenizer)
    if (const auto id = end_token(directory, *tokenizer)) eos = id;
}

std::optional<SftRow> read_sft_row(const SftFormat& format, Json row, const std::string& where,
                                   bool* truncated) {
  std::string group = group_of(format, row, where);
  row = normalized_row(format, std::move(row), where);
  answers_as_messages(format, row);
  const RowImages images = place_images(format, row, conversation_fields(row), where);
  std::optional<SftRow> out = read_placed_row(format, row, images, where, truncated);
  if (out) out->group = std::move(group);
  return out;
}

std::optional<SftRow> read_placed_row(const SftFormat& format, const Json& row,
                                      const RowImages& images, const std::string& where,
                                      bool* truncated) {
  Paths read = read_named(format, row, images, where);
  int64_t longest = 0;
  for (const TokenPath& path : read.paths) {
    check<DataError>(!path.tokens.empty(), where, ": the row has no tokens");
    longest = std::max(longest, static_cast<int64_t>(path.tokens.size()));
  }
  const ImagePlaces places(format, images);
  hide_images(places, read.paths);
  // A conversation is not tokenized beyond the cut: whether it trains tokens there is unknown.
  const bool unknown =
      longest > format.max_length &&
      (row.contains("messages") || (row.contains("completion") && row["completion"].is_array()));
  const bool trained_before = unknown || std::any_of(read.paths.begin(), read.paths.end(), trains);
  if (longest > format.max_length) {
    if (format.overlong == Overlong::kDrop) return std::nullopt;
    check_truncates(format, where, "", longest);
    *truncated = cut(read.paths, format.max_length);
    if (cuts_image(places, read.paths)) return std::nullopt;
  }
  SftRow out = read.turn_by_turn ? tree_of_trained(std::move(read.paths))
                                 : row_of(std::move(read.paths.at(0)));
  try {
    find_images(places, out);
  } catch (const DataError& e) {
    throw DataError(where + ": " + e.what());
  }
  if (out.supervised() == 0)
    out.untrained = trained_before ? temper::str("data.max_length ", format.max_length,
                                                 " cuts it before its first trained token")
                                   : read.untrained;
  return out;
}

std::optional<WholeRow> read_whole_row(const SftFormat& format, Json row,
                                       const std::string& where) {
  std::string group = group_of(format, row, where);
  row = normalized_row(format, std::move(row), where);
  const bool conversation =
      row.contains("messages") || (row.contains("prompt") && row.contains("completion"));
  if (!row.contains("input_ids") && (conversation || !row.contains("text"))) return {};
  if (format.images && !image_sources(row, where).empty()) return {};  // an image is never cut
  Paths read = read_named(format, row, {}, where);
  check<DataError>(!read.paths.at(0).tokens.empty(), where, ": the row has no tokens");
  return WholeRow{std::move(read.paths[0]), std::move(group)};
}

int64_t WholeRow::bytes() const {
  return static_cast<int64_t>((path.tokens.size() + path.labels.size()) * sizeof(int32_t));
}

int64_t WholeRow::pieces(int64_t max_length) const {
  return (std::ssize(path.tokens) - 1) / max_length + 1;
}

SftRow WholeRow::piece(int64_t number, int64_t max_length) const {
  const auto of = [&](const std::vector<int32_t>& all) {
    const int64_t begin = number * max_length, end = std::min(std::ssize(all), begin + max_length);
    return std::vector<int32_t>(all.begin() + begin, all.begin() + end);
  };
  SftRow row = row_of({of(path.tokens), of(path.labels)});
  row.group = group;
  if (row.supervised() == 0) row.untrained = "its piece of the row trains no token";
  return row;
}

}  // namespace temper::data
