// TFRecord files of tf.train.Example as lines of JSON: what TensorFlow's pipelines write.
#pragma once

#include <string>

#include "temper/data/read/unpacked_file.h"

namespace temper::data {

// Whether a file's name says so (is_tf_record_name in base/config/row_names.h).
bool is_tf_record(const std::string& path);

// Converts the file, in bounded memory, into an unlinked temporary file that has a row a line;
// returns it, at its begin. The file may be packed as TensorFlow's options GZIP and ZLIB do. Each
// record becomes an object of its features, sorted by name: bytes as text, or as {"bytes": BASE64}
// where they are no UTF-8; a single value as it is, several as a list; a feature without values is
// left out. Feature lists of a SequenceExample are lists of these, null where one has no values.
// Numbers that are not finite are null. Throws DataError ("PATH: row N: ...", from 1) where a
// checksum is wrong or a record is no Example, RunError where the disk is full.
FileDescriptor open_tf_record(const std::string& path, const UnpackLimits& limits = {});

}  // namespace temper::data
