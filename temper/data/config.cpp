#include "temper/data/config.h"

namespace temper {

template <>
inline constexpr std::array enum_names<data::Overlong> = {"truncate", "drop", "error"};
template <>
inline constexpr std::array enum_names<TrainOn> = {"auto", "all", "completion", "assistant"};

}  // namespace temper

namespace temper::data {

void DataSource::fields(Fields& f) {
  f.add("path", path, "file of rows", required());
  f.add("weight", weight, "how often it is drawn from, relative to the others", above(0));
  f.add("name", name, "what its metrics are called");
}
void DataSection::fields(Fields& f) {
  f.add("train", train, "rows to train on: a path, or a list of {path, weight, name}",
        one_or_list());
  f.add("eval", eval, "rows to evaluate on, written like data.train", one_or_list());
  f.add("columns", columns,
        "names of a row's fields in the file, as {prompt: question, completion: answer}");
  f.add("max_length", max_length, "most tokens of a row", at_least(2));
  f.add("overlong", overlong, "what happens to longer rows; counted and reported");
  f.add("shuffle", shuffle,
        "false: file order, each step the next batch_size rows, then around again");
  f.add("packing", packing, "several rows in one forward pass; changes the speed, never a loss");
  f.add("train_on", train_on,
        "which tokens are trained; auto: the completion or the assistant's turns where rows have "
        "them");
}

}  // namespace temper::data
