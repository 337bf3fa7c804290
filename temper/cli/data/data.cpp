// temper data: looks at row files and prepares them.
#include "temper/cli/data/data_tools.h"

namespace temper::cli {

Verb data_verb() {
  return {"data",
          "Looks at files of rows and prepares them.\n"
          "Rows come from files, directories, patterns or ids of data sets, in any format that "
          "training reads. They are written as\nlines of JSON, as they stood in the file (.gz and "
          ".zst are compressed, .json is one list, .parquet a table). A file\nappears when it is "
          "complete, and never replaces an input.",
          {{"stats", &data_stats, "what rows hold"},
           {"balance", &data_balance, "given shares of groups"},
           {"dedup", &data_dedup, "without rows that repeat others"},
           {"split", &data_split, "several files by shares"},
           {"convert", &data_convert, "another format"},
           {"pairs", &data_pairs, "preference pairs"}},
          "rows: statistics, balance, duplicates, splits, formats, preference pairs"};
}

}  // namespace temper::cli
