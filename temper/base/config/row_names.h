// Which names are those of files of rows.
#pragma once

#include <string_view>

namespace temper {

// TFRecord: "a.tfrecord", "a.tfrecords", and as TFDS numbers its parts,
// "a.tfrecord-00000-of-00008"; each may end with ".gz". `name` has no directory.
bool is_tf_record_name(std::string_view name);

// Any file of rows but lists in .json, which configs are, too. `name` has no directory.
bool is_row_name(std::string_view name);

}  // namespace temper
