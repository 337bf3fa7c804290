#include "temper/train/loss.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "temper/base/exact_math.h"
#include "temper/base/json.h"

namespace temper::train {
namespace {

LossSums::Sum& find(std::vector<LossSums::Sum>& list, const std::string& name) {
  const auto it = std::find_if(list.begin(), list.end(),
                               [&](const LossSums::Sum& s) { return s.name == name; });
  if (it != list.end()) return *it;
  return list.emplace_back(LossSums::Sum{.name = name});
}

// JSON has no nan: a loss that is none travels as null.
double number(const Json& x) { return x.is_null() ? std::nan("") : x.get<double>(); }

Json to_json(const std::vector<LossSums::Sum>& list) {
  Json out = Json::array();
  for (const LossSums::Sum& s : list)
    out.push_back({s.name, s.sum, s.scale, s.count, s.separate, s.exponential});
  return out;
}

}  // namespace

double ordered_sum(const at::Tensor& x) {
  const at::Tensor values = x.detach().contiguous();
  const float* data = values.const_data_ptr<float>();
  double sum = 0;
  for (int64_t i = 0; i < values.numel(); ++i) sum += data[i];
  return sum;
}

double ordered_sum(const at::Tensor& value, const at::Tensor& weight) {
  return ordered_sum(weight.defined() ? value.detach() * weight : value);
}

at::Tensor LossSums::add(const Loss& loss) {
  at::Tensor total;
  for (const Term& term : loss.terms) {
    Sum& s = find(terms, term.name);
    s.sum += ordered_sum(term.value, term.weight);
    s.scale = term.coefficient;
    s.count = term.denominator;
    s.separate = term.separate;
    const at::Tensor part = (term.weight.defined() ? term.weight * term.value : term.value).sum() *
                            (term.coefficient / term.denominator);
    total = total.defined() ? total + part : part;
  }
  for (const Mean& mean : loss.means) {
    Sum& s = find(means, mean.name);
    s.sum += mean.sum;
    s.count += mean.count;
    s.exponential = mean.exponential;
  }
  return total;
}

// Terms are matched by name, as a rank without passes has none. JSON's numbers read back to the
// same doubles.
void LossSums::reduce(dist::Group& group) {
  if (group.size() == 1) return;
  const std::vector<std::string> all =
      group.all_gather(Json{to_json(terms), to_json(means)}.dump());
  terms.clear();
  means.clear();
  for (const std::string& bytes : all) {
    const Json lists = parse_json(bytes, "another rank");
    for (const Json& item : lists[0]) {
      Sum& s = find(terms, item[0].get<std::string>());
      s.sum += number(item[1]);
      s.scale = number(item[2]);
      s.count = number(item[3]);
      s.separate = item[4].get<bool>();
    }
    for (const Json& item : lists[1]) {
      Sum& s = find(means, item[0].get<std::string>());
      s.sum += number(item[1]);
      s.count += number(item[3]);
      s.exponential = item[5].get<bool>();
    }
  }
}

double LossSums::Sum::value() const {
  if (!(count > 0)) return 0;
  return exponential ? exact::exp(sum / count) : scale * sum / count;
}

double LossSums::total() const {
  double sum = 0;
  for (const Sum& term : terms)
    if (!term.separate) sum += term.value();
  return sum;
}

}  // namespace temper::train
