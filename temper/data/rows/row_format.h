// The formats that rows of conversations come in.
#pragma once

namespace temper::data {

// kMessages, also called kChatml: {"messages": [{role, content}]}. kSharegpt: {"conversations":
// [{from, value}]}, with `system` and `tools` beside it. kAlpaca: {"instruction", "input",
// "output"}, with `system` and `history` beside it. kAuto: by the row's fields.
enum class RowFormat { kAuto, kMessages, kChatml, kSharegpt, kAlpaca };

}  // namespace temper::data
