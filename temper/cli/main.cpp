#include "temper/cli/verbs.h"

int main(int argc, char** argv) { return temper::cli::run({argv + 1, argv + argc}); }
