#include "temper/text/tokenizer/special_tokens.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "temper/base/error.h"
#include "temper/base/file.h"

namespace temper {
namespace {
namespace fs = std::filesystem;

// A special token is a text, or an object whose `content` is the text.
std::optional<std::string> token_text(const Json& token) {
  if (token.is_string()) return token.get<std::string>();
  if (token.is_object() && token.contains("content") && token["content"].is_string()) {
    return token["content"].get<std::string>();
  }
  return std::nullopt;
}

void add_tokens(Json& out, const Json& tokens, bool any_name) {
  for (const auto& [name, token] : tokens.items()) {
    if (!any_name && !name.ends_with("_token")) continue;
    if (const auto text = token_text(token)) out[name] = *text;
  }
}

}  // namespace

bool is_model_file(const fs::path& path) { return is_file(path.string()); }

Json read_model_file(const std::string& model_dir, const char* name) {
  const fs::path path = fs::path(model_dir) / name;
  if (!is_model_file(path)) return Json::object();
  Json config = read_json_file(path.string());
  check<DataError>(config.is_object(), path.string(), ": expected a JSON object");
  return config;
}

Json special_tokens(const std::string& model_dir) {
  const Json config = read_model_file(model_dir, "tokenizer_config.json");
  Json out = Json::object();
  add_tokens(out, config, false);
  const auto extra = config.find("extra_special_tokens");
  if (extra != config.end() && extra->is_object()) add_tokens(out, *extra, true);
  // Older directories keep them in a separate file, which takes precedence.
  if (!config.contains("added_tokens_decoder")) {
    add_tokens(out, read_model_file(model_dir, "special_tokens_map.json"), false);
  }
  return out;
}

std::optional<int32_t> end_token(const std::string& model_dir, const Tokenizer& tokenizer) {
  const Json tokens = special_tokens(model_dir);
  if (const auto eos = tokens.find("eos_token"); eos != tokens.end()) {
    if (const auto id = tokenizer.id_of(eos->get<std::string>())) return id;
  }
  const char* const file = "generation_config.json";
  const Json config = read_model_file(model_dir, file);
  const auto found = config.find("eos_token_id");
  if (found == config.end() || found->is_null() || (found->is_array() && found->empty()))
    return std::nullopt;
  const Json& id = found->is_array() ? found->front() : *found;
  const bool valid =
      id.is_number_unsigned() && id.get<uint64_t>() < static_cast<uint64_t>(tokenizer.vocab_size());
  check<DataError>(valid, (fs::path(model_dir) / file).string(), ": eos_token_id: found ",
                   dump_json(id), "; expected an id below ", tokenizer.vocab_size());
  return id.get<int32_t>();
}

std::vector<int32_t> encode_beginning(const Tokenizer& tokenizer, std::string_view text,
                                      size_t limit, Tokenizer::Quotes quotes) {
  std::vector<int32_t> ids = tokenizer.encode_first(text, limit, quotes);
  const std::vector<int32_t> before = tokenizer.tokens_before_text();
  const bool there =
      ids.size() >= before.size() && std::equal(before.begin(), before.end(), ids.begin());
  if (!there) ids.insert(ids.begin(), before.begin(), before.end());
  return ids;
}

std::vector<int32_t> encode_text(const Tokenizer& tokenizer, std::string_view text, size_t limit,
                                 Tokenizer::Quotes quotes) {
  std::vector<int32_t> ids = encode_beginning(tokenizer, text, limit, quotes);
  const std::vector<int32_t> after = tokenizer.tokens_after_text();
  const bool there =
      ids.size() >= after.size() && std::equal(after.rbegin(), after.rend(), ids.rbegin());
  if (!there) ids.insert(ids.end(), after.begin(), after.end());
  return ids;
}

Json quoted(const Tokenizer& tokenizer, Tokenizer::Quotes quotes, Json value) {
  if (quotes == Tokenizer::Quotes::kNone) return value;
  if (value.is_string()) return tokenizer.quoted(value.get_ref<const std::string&>());
  if (value.is_structured())
    for (Json& item : value) item = quoted(tokenizer, quotes, std::move(item));
  return value;
}

}  // namespace temper
