#include "temper/generate/sampling/suggested_sampling.h"

#include <cmath>
#include <nlohmann/json.hpp>

#include "temper/base/error.h"
#include "temper/base/json.h"
#include "temper/text/tokenizer/special_tokens.h"

namespace temper::generate {

std::string take_suggested(const std::string& model_dir, SamplingOptions& options,
                           const std::function<bool(std::string_view name)>& takes) {
  constexpr const char* kFile = "generation_config.json";
  const Json config = read_model_file(model_dir, kFile);
  std::string said;
  const auto take = [&](const char* name, auto& value, double low, double high, bool above,
                        const char* expected) {
    const auto found = config.find(name);
    if (found == config.end() || found->is_null() || !takes(name)) return;
    const double number = found->is_number() ? found->get<double>() : NAN;
    const bool fits = number <= high && (above ? number > low : number >= low);
    check<DataError>(fits, model_dir, "/", kFile, ": ", name, ": found ", dump_json(*found),
                     ", expected ", expected);
    value = static_cast<std::decay_t<decltype(value)>>(number);
    said += temper::str(said.empty() ? "" : ", ", name, " ", value);
  };
  const auto sample = config.find("do_sample");
  check<DataError>(sample == config.end() || sample->is_null() || sample->is_boolean(), model_dir,
                   "/", kFile, ": do_sample: expected true or false");
  if (sample != config.end() && *sample == false) {  // greedy, whatever the other keys say
    if (takes("temperature")) {
      options.temperature = 0;
      said = "temperature 0";
    }
  } else {
    take("temperature", options.temperature, 0, 1e6, false, "a number of at least 0");
    take("top_p", options.top_p, 0, 1, true, "a number above 0 and at most 1");
    take("top_k", options.top_k, -1, 1e9, false, "a whole number");
    take("min_p", options.min_p, 0, 1, false, "a number from 0 to 1");
  }
  take("repetition_penalty", options.repetition_penalty, 0, 1e6, true, "a number above 0");
  if (options.top_k < 0) options.top_k = 0;
  return said;
}

std::string described(const SamplingOptions& o) {
  return temper::str("temperature ", o.temperature, ", top_p ", o.top_p, ", top_k ", o.top_k,
                     ", min_p ", o.min_p, ", repetition_penalty ", o.repetition_penalty);
}

}  // namespace temper::generate
