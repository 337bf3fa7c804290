#include "temper/generate/sampling/suggested_sampling.h"

#include <cmath>
#include <nlohmann/json.hpp>

#include "temper/base/error.h"
#include "temper/base/json.h"
#include "temper/text/tokenizer/special_tokens.h"

namespace temper::generate {
namespace {

constexpr const char* kFile = "generation_config.json";

// Whether a greedy choice does without it.
bool is_of_sampling(const SamplingOption& option) {
  using S = SamplingOptions;
  return option.holds(&S::temperature) || option.holds(&S::top_k) || option.holds(&S::top_p) ||
         option.holds(&S::min_p);
}

}  // namespace

std::string take_suggested(const std::string& model_dir, SamplingOptions& options,
                           const std::function<bool(const SamplingOption&)>& takes) {
  const Json config = read_model_file(model_dir, kFile);
  const Json sample = config.value("do_sample", Json());
  check<DataError>(sample.is_null() || sample.is_boolean(), model_dir, "/", kFile,
                   ": do_sample: expected true or false");
  const bool greedy = sample == false;  // whatever the keys of sampling say
  GenerationOptions all{.sampling = options};
  std::string said;
  for (const SamplingOption& option : sampling_options()) {
    const auto offer = option.at(Api::kGenerationConfig);
    if (!offer || (takes && !takes(option))) continue;
    Json found = config.value(offer->name, Json());
    if (greedy && is_of_sampling(option))
      found = option.holds(&SamplingOptions::temperature) ? Json(0) : Json();
    if (found.is_null()) continue;
    const double number = found.is_number() ? found.get<double>() : NAN;
    visit_number(option, all, [&](auto& value) {
      using Number = std::decay_t<decltype(value)>;
      constexpr bool kWhole = std::is_integral_v<Number>;
      check<DataError>(allows(offer->rule, number) && (!kWhole || number == std::trunc(number)),
                       model_dir, "/", kFile, ": ", offer->name, ": found ", dump_json(found),
                       ", expected ", allowed(offer->rule, kWhole));
      value = option.from_api(static_cast<Number>(number));
      said += temper::str(said.empty() ? "" : ", ", option.name, " ", value);
    });
  }
  options = all.sampling;
  return said;
}

std::string described(const SamplingOptions& options) {
  const GenerationOptions all{.sampling = options};
  std::string text;
  for (const SamplingOption& option : sampling_options())
    if (option.at(Api::kGenerationConfig))
      visit_number(option, all, [&](auto value) {
        text += temper::str(text.empty() ? "" : ", ", option.name, " ", value);
      });
  return text;
}

}  // namespace temper::generate
