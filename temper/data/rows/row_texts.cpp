#include "temper/data/rows/row_texts.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <utility>

#include "temper/data/images/image_fields.h"
#include "temper/text/chat/message_parts.h"
#include "temper/text/unicode.h"

namespace temper::data {
namespace {

constexpr std::array kAsked = {"prompt",   "prompt_ids", "prompt_tokens",
                               "question", "problem",    "query"};
constexpr std::array kAnswered = {
    "completion", "chosen",     "rejected",     "answer",         "response",          "output",
    "solution",   "chosen_ids", "rejected_ids", "completion_ids", "completion_tokens",
};

const Json* field_of(const Json& object, const char* name) {
  const auto found = object.find(name);
  return found == object.end() || found->is_null() ? nullptr : &*found;
}

void add_text(std::string& text, std::string_view more) {
  if (!text.empty() && !more.empty()) text += '\n';
  text += more;
}

std::string_view speaker_of(const Json& message) {
  for (const char* name : {"role", "from"})
    if (const Json* role = field_of(message, name); role && role->is_string())
      return role->get_ref<const std::string&>();
  return {};
}

std::string text_of(const Json& value);

std::string content_of(const Json& message) {
  for (const char* name : {"content", "value"})
    if (const Json* content = field_of(message, name)) {
      if (content->is_array()) {
        Json words = Json::array();
        for (const Json& part : *content)
          if (!is_image(part)) words.push_back(part);
        if (const auto joined = text_of_parts(words)) return *joined;
      }
      return text_of(*content);
    }
  return message.contains("role") || message.contains("from") ? std::string() : dump_json(message);
}

bool is_list_of_turns(const Json& value) {
  return value.is_array() && !value.empty() &&
         std::all_of(value.begin(), value.end(), [](const Json& message) {
           return message.is_object() && !speaker_of(message).empty();
         });
}

bool is_turn_of_assistant(const Json& message) {
  const std::string_view role = speaker_of(message);
  return role == "assistant" || role == "gpt" || role == "chatgpt" || role == "model" ||
         role == "bing" || role == "bard";
}

std::string text_of_messages(const Json& messages, size_t begin, size_t end) {
  if (end - begin == 1) return content_of(messages[begin]);
  std::string text;
  for (size_t i = begin; i < end; ++i)
    add_text(text, std::string(speaker_of(messages[i])) + ": " + content_of(messages[i]));
  return text;
}

std::string text_of(const Json& value) {
  if (value.is_string()) return value.get<std::string>();
  if (value.is_null()) return {};
  if (is_list_of_turns(value)) return text_of_messages(value, 0, value.size());
  if (!value.is_array()) return dump_json(value);
  std::string text;
  for (const Json& item : value) {
    if (!text.empty()) text += ' ';
    text += text_of(item);
  }
  return text;
}

// A conversation, which tables hold as its JSON text.
Json messages_of(const Json& value) {
  if (!value.is_string()) return value;
  const Json parsed = Json::parse(value.get_ref<const std::string&>(), nullptr, false);
  return is_list_of_turns(parsed) ? parsed : Json();
}

size_t end_of_prompt(const Json& messages) {
  size_t end = messages.size();
  while (end > 0 && is_turn_of_assistant(messages[end - 1])) --end;
  return end;
}

RowTexts of_conversation(const Json& messages, const Json& row) {
  RowTexts texts;
  const size_t end = end_of_prompt(messages);
  if (const Json* system = field_of(row, "system"); system && system->is_string())
    texts.prompt = system->get<std::string>();
  if (end > 0) add_text(texts.prompt, text_of_messages(messages, 0, end));
  for (size_t i = end; i < messages.size(); ++i) add_text(texts.answer, content_of(messages[i]));
  return texts;
}

RowTexts of_alpaca(const Json& row) {
  RowTexts texts;
  for (const char* name : {"system", "history", "instruction", "input"})
    if (const Json* value = field_of(row, name)) add_text(texts.prompt, text_of(*value));
  if (const Json* value = field_of(row, "output")) texts.answer = text_of(*value);
  return texts;
}

// Two texts that begin with the same prompt: up to where the assistant speaks for the last time,
// or else up to the last blank that both have.
RowTexts of_texts_with_shared_prompt(const std::string& chosen, const std::string& rejected) {
  const auto apart = std::mismatch(chosen.begin(), chosen.end(), rejected.begin(), rejected.end());
  std::string shared(chosen.begin(), apart.first);
  size_t end = shared.rfind("Assistant:");
  if (end == shared.npos) end = shared.find_last_of(" \t\n");
  end = end == shared.npos ? 0 : end;
  return {chosen.substr(0, end), chosen.substr(end) + "\n" + rejected.substr(end)};
}

RowTexts of_pair_without_prompt(const Json& chosen, const Json& rejected) {
  if (!is_list_of_turns(chosen) || !is_list_of_turns(rejected))
    return of_texts_with_shared_prompt(text_of(chosen), text_of(rejected));
  const size_t end = end_of_prompt(chosen);
  RowTexts texts;
  if (end > 0) texts.prompt = text_of_messages(chosen, 0, end);
  for (const Json* side : {&chosen, &rejected})
    for (size_t i = std::min(end, side->size()); i < side->size(); ++i)
      add_text(texts.answer, content_of((*side)[i]));
  return texts;
}

// Ids, of which those before the first trained one are the prompt.
RowTexts of_ids(const Json& ids, const Json* labels) {
  size_t end = ids.size();
  if (labels && labels->is_array() && labels->size() == ids.size()) {
    end = 0;
    while (end < ids.size() && (*labels)[end] == -100) ++end;
  }
  if (end == 0) end = ids.size();
  RowTexts texts;
  for (size_t i = 0; i < ids.size(); ++i) {
    std::string& text = i < end ? texts.prompt : texts.answer;
    if (!text.empty()) text += ' ';
    text += text_of(ids[i]);
  }
  return texts;
}

void add_all_texts(const Json& value, std::string& text) {
  if (value.is_string()) add_text(text, value.get_ref<const std::string&>());
  if (value.is_structured())
    for (const Json& item : value) add_all_texts(item, text);
}

void add_answers(const Json& row, RowTexts& texts) {
  for (const char* name : kAnswered)
    if (const Json* answer = field_of(row, name)) add_text(texts.answer, text_of(*answer));
}

}  // namespace

std::string RowTexts::whole() const {
  std::string text = prompt;
  add_text(text, answer);
  return text;
}

RowTexts texts_of(const Json& row) {
  const Json* const prompt = field_of(row, "prompt");
  for (const char* name : {"messages", "conversations"})
    if (const Json* value = field_of(row, name); value && !prompt)
      if (const Json messages = messages_of(*value); is_list_of_turns(messages))
        return of_conversation(messages, row);
  if (!prompt && field_of(row, "instruction")) return of_alpaca(row);
  RowTexts texts;
  for (const char* name : kAsked)
    if (const Json* asked = field_of(row, name)) {
      // In reinforcement learning a prompt may be a conversation with its answer.
      if (is_list_of_turns(*asked) && end_of_prompt(*asked) > 0)
        texts = of_conversation(*asked, Json::object());
      else
        texts.prompt = text_of(*asked);
      add_answers(row, texts);
      return texts;
    }
  const Json *const chosen = field_of(row, "chosen"), *const rejected = field_of(row, "rejected");
  if (chosen && rejected) return of_pair_without_prompt(*chosen, *rejected);
  if (const Json* text = field_of(row, "text")) return {text_of(*text), ""};
  for (const char* name : {"input_ids", "tokens"})
    if (const Json* ids = field_of(row, name); ids && ids->is_array())
      return of_ids(*ids, field_of(row, "labels"));
  add_all_texts(row, texts.prompt);
  return texts;
}

namespace {

// Kana, Han, and what else is written without spaces between words.
bool is_word_itself(char32_t c) {
  return (c >= 0x3040 && c <= 0x30ff) || (c >= 0x3400 && c <= 0x9fff) ||
         (c >= 0xf900 && c <= 0xfaff) || (c >= 0x20000 && c <= 0x3ffff);
}

bool is_ascii_word(unsigned char c) {
  return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_';
}

}  // namespace

Words::Words(std::string_view text) {
  const bool ascii = std::all_of(text.begin(), text.end(), [](char c) { return (c & 0x80) == 0; });
  if (ascii) {
    text_ = text;
    for (char& c : text_)
      if (c >= 'A' && c <= 'Z') c = static_cast<char>(c | 0x20);
  } else {
    text_ = lowercase(text);
  }
  const std::string_view all = text_;
  size_t begin = all.npos;  // of the word that is being read
  const auto end_word = [&](size_t end) {
    if (begin != all.npos) words_.push_back(all.substr(begin, end - begin));
    begin = all.npos;
  };
  for (size_t i = 0; i < all.size();) {
    const size_t at = i;
    const auto byte = static_cast<unsigned char>(all[i]);
    const char32_t c = byte < 0x80 ? all[i++] : next_char(all, i);
    if (byte < 0x80 ? is_ascii_word(byte) : is_word_char(c) && !is_word_itself(c)) {
      if (begin == all.npos) begin = at;
    } else {
      end_word(at);
      if (byte >= 0x80 && is_word_itself(c)) words_.push_back(all.substr(at, i - at));
    }
  }
  end_word(all.size());
}

namespace {

RowHash hash_of_bytes(std::string_view bytes, uint64_t seed) {
  const XXH128_hash_t hash = XXH3_128bits_withSeed(bytes.data(), bytes.size(), seed);
  return {hash.low64, hash.high64};
}

// The value with the members of every object in the order of their names.
void append_sorted(const Json& value, std::string& out) {
  if (value.is_object()) {
    std::vector<std::pair<std::string_view, const Json*>> members;
    for (const auto& [name, member] : value.items()) members.emplace_back(name, &member);
    std::sort(members.begin(), members.end());
    out += '{';
    for (const auto& [name, member] : members) {
      out += dump_json(std::string(name)) + ":";
      append_sorted(*member, out);
      out += ',';
    }
    out += '}';
  } else if (value.is_array()) {
    out += '[';
    for (const Json& item : value) {
      append_sorted(item, out);
      out += ',';
    }
    out += ']';
  } else {
    out += dump_json(value);
  }
}

}  // namespace

RowHash hash_of_fields(const Json& row) {
  std::string text;
  append_sorted(row, text);
  return hash_of_bytes(text, 0);
}

RowHash hash_of_text(std::string_view text, uint64_t seed) {
  std::string spaced;
  spaced.reserve(text.size());
  bool blank = false;
  for (size_t i = 0; i < text.size();) {
    const size_t at = i;
    const char32_t c = next_char(text, i);
    if (is_white_space(c)) {
      blank = true;
      continue;
    }
    if (blank && !spaced.empty()) spaced += ' ';
    blank = false;
    spaced += text.substr(at, i - at);
  }
  return hash_of_bytes(spaced, seed);
}

}  // namespace temper::data
