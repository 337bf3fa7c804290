// Which tokens of a conversation are trained.
//
// A conversation's text is rendered whole and tokenized once, so the tokens are those the model
// meets when it is used. Trained is what the assistant says: each of its turns from the end of the
// header that the generation prompt writes ("<|im_start|>assistant\n") to where the turn ends, its
// end-of-turn token included, and also what the template puts after that token within the turn
// (Qwen's "\n"). Templates with `{% generation %}` blocks say themselves what is trained, and are
// believed.
//
// Where a turn begins and ends is read off renders of the conversation's beginnings: what stands
// before assistant message i, with the generation prompt, and what stands up to its end must each
// be a beginning of the whole. A template for which that does not hold (one that drops earlier
// reasoning, say) is an error that names the message: nothing is guessed.
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
#include "temper/text/chat_template.h"
#include "temper/text/tokenizer.h"

namespace temper {

struct TokenizedConversation {
  std::string text;
  std::vector<int32_t> tokens;
  std::vector<int32_t> labels;  // labels[i] == tokens[i] where trained, else -100
};

// kAll: every token. kAssistant: every turn of the assistant. kCompletion: of messages the last
// turn of the assistant alone, of a prompt and completion the completion. kAuto: kAssistant for
// messages, kCompletion for a prompt and completion.
enum class TrainOn { kAuto, kAll, kCompletion, kAssistant };

// Throws DataError.
TokenizedConversation tokenize_conversation(const Tokenizer& tokenizer, const ChatTemplate& chat,
                                            const Json& messages, const Json& tools,
                                            TrainOn train_on, bool add_generation_prompt = false);

// Texts, each tokenized by itself and joined, so that the prompt's tokens are those of the prompt
// alone. `eos` is added where the completion does not end with it.
TokenizedConversation tokenize_prompt_completion(const Tokenizer& tokenizer,
                                                 std::string_view prompt,
                                                 std::string_view completion, TrainOn train_on,
                                                 std::optional<int32_t> eos);

// Messages: both together are one conversation; all after the prompt, rendered with the generation
// prompt, is trained, or under kAssistant the assistant's turns among it. Throws DataError, also
// when the rendered prompt is no beginning of the conversation.
TokenizedConversation tokenize_prompt_completion(const Tokenizer& tokenizer,
                                                 const ChatTemplate& chat,
                                                 const Json& prompt_messages,
                                                 const Json& completion_messages, const Json& tools,
                                                 TrainOn train_on);

}  // namespace temper
