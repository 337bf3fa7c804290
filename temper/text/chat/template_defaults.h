// Variables of a chat template as a part of its text.
#pragma once

#include <string>

#include "temper/base/json.h"

namespace temper {

// `source` behind a head that gives it `variables` (an object) as defaults, as in
//   {%- if enable_thinking is not defined %}{%- set enable_thinking = false %}{%- endif %}
// so that whatever renders the template (transformers, vLLM, Temper) writes what it writes with
// these variables, and may still give others. `given`: an object of what every renderer gives by
// itself, such as the special tokens; a variable takes the place of such a value. Left out are
// names that no template can read.
std::string with_default_variables(const std::string& source, const Json& variables,
                                   const Json& given);

}  // namespace temper
