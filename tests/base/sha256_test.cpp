#include "temper/base/sha256.h"

#include <doctest/doctest.h>
#include <unistd.h>

#include "temper/base/error.h"
#include "temper/base/file.h"

// The examples of FIPS 180-4, and sizes around a block's end (computed by Python's hashlib).
TEST_CASE("SHA-256 of known messages") {
  using temper::sha256_hex;
  CHECK(sha256_hex("") == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  CHECK(sha256_hex("abc") == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  CHECK(sha256_hex("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq") ==
        "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  CHECK(sha256_hex(std::string(55, 'a')) ==
        "9f4390f8d30c2dd92ec9f095b65e2b9ae9b0a925a5258e241c9f1e910f734318");
  CHECK(sha256_hex(std::string(63, 'a')) ==
        "7d3e74a05d7db15bce4ad9ec0658ea98e3f06eeecf16b4c6fff2da457ddc2f34");
  CHECK(sha256_hex(std::string(64, 'a')) ==
        "ffe054fe7ae0cb6dc65c3af9b61d5209f439851db43d0ba5997337df154668eb");
  CHECK(sha256_hex(std::string(119, 'a')) ==
        "31eba51c313a5c08226adf18d4a359cfdfd8d2e816b13f4af952f7ea6584dcfb");
  CHECK(sha256_hex(std::string(1000, 'a')) ==
        "41edece42d63e8d9bf515a9ba6932e1c20cbc9f5a5d134645adb5db1b9737ea3");
}

TEST_CASE("SHA-256 of a file is that of its bytes, and of none where it was cancelled") {
  const std::string path = temper::temporary_directory() + "/sha256_test";
  const std::string bytes(3 << 20, 'a');  // of several pieces
  temper::write_file_atomic(path, bytes);
  CHECK(temper::sha256_of_file(path) == temper::sha256_hex(bytes));
  const std::atomic<bool> cancelled = true;
  CHECK(temper::sha256_of_file(path, &cancelled).empty());
  ::unlink(path.c_str());
  CHECK_THROWS_AS(temper::sha256_of_file(path), temper::DataError);
}
