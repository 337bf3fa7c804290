// The library of tokenizers alone: the ids of a file, as `tokenize_file MODEL_DIRECTORY FILE`
// prints them.
#include <iostream>

#include "temper/base/error.h"
#include "temper/base/file.h"
#include "temper/text/tokenizer/tokenizer.h"

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  try {
    const auto tokenizer = temper::Tokenizer::load_directory(argv[1]);
    for (const int32_t id : tokenizer->encode(temper::read_file(argv[2]))) std::cout << id << "\n";
  } catch (const temper::Error& e) {
    std::cerr << e.what() << "\n";
    return 2;
  }
}
