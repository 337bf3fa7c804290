// Which tokens of a conversation are trained, and in which text.
//
// Where a chat template renders every beginning of a conversation as a beginning of the whole, the
// conversation is trained whole: its text is rendered and tokenized once, and trained is what the
// assistant says, each of its turns from the end of the header that the generation prompt writes
// ("<|im_start|>assistant\n") to where the turn ends, its end-of-turn token included, and also what
// the template puts after that token within the turn (Qwen's "\n").
//
// Where it does not (Qwen3 drops the reasoning of earlier turns), the conversation is trained turn
// by turn: each turn in the text that the template gives when the turn is sampled. Its context is
// the render of the messages before it with the generation prompt, its target what the render up to
// and including the turn has after that. Some templates write even what stands before a turn
// differently once the turn is there (Mistral's put the system prompt only into a question that
// comes last, Hermes' end the last tool's answer differently): there the target is what follows the
// generation prompt in the render with the turn. Where it does not follow at all (DeepSeek R1 asks
// for "<think>" and leaves it out of what was said) it is an error that names the message: nothing
// is guessed.
//
// Templates with `{% generation %}` blocks say themselves what is trained in the whole, and are
// believed.
//
// A turn whose message has `"weight": 0` or `"train": false` is context for others and not trained.
// Either field is taken out before the template sees the message.
//
// A token belongs to a turn when its first character does: one that joins the header's "\n" with a
// "\n" of the answer begins before it and is not trained.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "temper/base/json.h"
#include "temper/text/chat/chat_template.h"
#include "temper/text/tokenizer/tokenizer.h"

namespace temper {

// The label of a token that no loss counts, as in Hugging Face's datasets.
inline constexpr int32_t kNotTrained = -100;

struct TokenizedConversation {
  std::string text;
  std::vector<int32_t> tokens;
  std::vector<int32_t> labels;  // labels[i] == tokens[i] where trained, else -100
};

struct TrainedConversation {
  bool turn_by_turn = false;
  // The whole conversation; or one for each trained turn, whose text ends with the turn.
  std::vector<TokenizedConversation> paths;
};

// kAll: every token. kAssistant: every turn of the assistant. kCompletion: of messages the last
// turn of the assistant alone, of a prompt and completion the completion. kAuto: kAssistant for
// messages, kCompletion for a prompt and completion.
enum class TrainOn { kAuto, kAll, kCompletion, kAssistant };

// kAuto: whole where it can be, else turn by turn. kWhole: whole, or an error.
enum class ConversationMode { kAuto, kWhole, kTurns };

struct ConversationOptions {
  TrainOn train_on = TrainOn::kAuto;
  ConversationMode mode = ConversationMode::kAuto;
  bool add_generation_prompt = false;  // at the end of a whole conversation; it is not trained
  // The most tokens of a path that are needed: those beyond the limit may be missing.
  size_t limit = SIZE_MAX;
  // kMarked: the messages' texts are Tokenizer::quoted().
  Tokenizer::Quotes quotes = Tokenizer::Quotes::kNone;
};

// Throws DataError.
TrainedConversation tokenize_conversation(const Tokenizer& tokenizer, const ChatTemplate& chat,
                                          const Json& messages, const Json& tools,
                                          const ConversationOptions& options = {});

// Texts, each tokenized by itself and joined, so that the prompt's tokens are those of the prompt
// alone; what the tokenizer's post-processor puts before a text stands before the prompt. `eos` is
// added where the completion does not end with it.
TokenizedConversation tokenize_prompt_completion(
    const Tokenizer& tokenizer, std::string_view prompt, std::string_view completion,
    TrainOn train_on, std::optional<int32_t> eos, size_t limit = SIZE_MAX,
    Tokenizer::Quotes quotes = Tokenizer::Quotes::kNone);

// Messages: both together are one conversation. Whole, all after the prompt, rendered with the
// generation prompt, is trained, or under kAssistant the assistant's turns among it; turn by turn,
// the assistant's turns of the completion. Throws DataError.
TrainedConversation tokenize_prompt_completion(const Tokenizer& tokenizer, const ChatTemplate& chat,
                                               const Json& prompt_messages,
                                               const Json& completion_messages, const Json& tools,
                                               const ConversationOptions& options = {});

}  // namespace temper
