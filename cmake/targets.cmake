# temper_text: tokenizers and chat templates, of use without the rest. temper_core: what needs no LibTorch. temper:
# everything, one shared library. build/temper: the program.
set(TEMPER_RPATH "$ORIGIN;$ORIGIN/../lib")

function(temper_glob out folder)
  # Relative, because the folders above the source tree may have any names.
  file(GLOB_RECURSE found RELATIVE ${CMAKE_SOURCE_DIR} CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/temper/${folder}/*.cpp)
  list(FILTER found EXCLUDE REGEX "/(kernels|nccl|parquet|sandbox|xgrammar)/")
  list(TRANSFORM found PREPEND ${CMAKE_SOURCE_DIR}/)
  set(${out} ${found} PARENT_SCOPE)
endfunction()

# Folders whose code waits for people, files, other processes or the operations of ops: -O2 would only make their build
# slower. No result depends on it.
set(TEMPER_COLD image data env http io metrics process rewards serve tinker workers preference rl distill check train models nn)

# Splits the sources of folders: `hot` ones, and `cold` ones, which are compiled at -O1 as a library of objects.
function(temper_sources hot cold)
  set(hot_sources)
  set(cold_sources)
  foreach(folder ${ARGN})
    temper_glob(found ${folder})
    if(folder IN_LIST TEMPER_COLD)
      list(APPEND cold_sources ${found})
    else()
      list(APPEND hot_sources ${found})
    endif()
  endforeach()
  set(${hot} ${hot_sources} PARENT_SCOPE)
  set(${cold} ${cold_sources} PARENT_SCOPE)
endfunction()

function(temper_cold_library name)
  add_library(${name} OBJECT ${ARGN})
  target_include_directories(${name} PRIVATE ${CMAKE_SOURCE_DIR})
  target_compile_options(${name} PRIVATE $<$<CONFIG:Release>:-O1>)
endfunction()

# Folder text with the sources of base that it needs.
function(temper_text_library)
  temper_glob(sources text)
  set(templates ${sources})
  list(FILTER templates INCLUDE REGEX "/text/jinja/")
  list(REMOVE_ITEM sources ${templates})
  temper_cold_library(temper_jinja ${templates})
  temper_unity(temper_jinja)
  target_link_libraries(temper_jinja PRIVATE nlohmann_json::nlohmann_json PkgConfig::UTF8PROC)
  list(TRANSFORM ARGN PREPEND ${CMAKE_SOURCE_DIR}/temper/base/)
  add_library(temper_text SHARED ${sources} ${ARGN} $<TARGET_OBJECTS:temper_jinja>)
  add_library(temper::text ALIAS temper_text)
  target_include_directories(temper_text PUBLIC $<BUILD_INTERFACE:${CMAKE_SOURCE_DIR}>)
  target_link_libraries(temper_text PUBLIC nlohmann_json::nlohmann_json
    PRIVATE PkgConfig::PCRE2 PkgConfig::UTF8PROC PkgConfig::SENTENCEPIECE)
  set_target_properties(temper_text PROPERTIES EXPORT_NAME text)
  # PCRE2's header wants its macro first.
  set_source_files_properties(${CMAKE_SOURCE_DIR}/temper/text/regex.cpp PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
  temper_unity(temper_text)
endfunction()

function(temper_core_folders)
  temper_sources(sources cold ${ARGN})
  get_target_property(elsewhere temper_text SOURCES)
  list(REMOVE_ITEM cold ${elsewhere})
  temper_cold_library(temper_core_cold ${cold})
  temper_unity(temper_core_cold)
  target_link_libraries(temper_core_cold PRIVATE nlohmann_json::nlohmann_json yaml-cpp PkgConfig::PCRE2 PkgConfig::ZSTD
    PkgConfig::JPEG PkgConfig::PNG PkgConfig::WEBP)
  # The readers of rows need no LibTorch either; the layout keeps them below the models.
  add_library(temper_core SHARED ${sources} $<TARGET_OBJECTS:temper_core_cold>)
  target_include_directories(temper_core PUBLIC $<BUILD_INTERFACE:${CMAKE_SOURCE_DIR}>)
  target_link_libraries(temper_core PUBLIC temper_text Threads::Threads nlohmann_json::nlohmann_json
    PRIVATE yaml-cpp PkgConfig::PCRE2 PkgConfig::ZSTD PkgConfig::JPEG PkgConfig::PNG PkgConfig::WEBP PkgConfig::OPENSSL ZLIB::ZLIB
      ${CMAKE_DL_LIBS})
  set_target_properties(temper_core PROPERTIES INSTALL_RPATH "$ORIGIN")
  temper_unity(temper_core)
  # temper-sandbox: starts programs in a sandbox, from beside libtemper_core.
  file(GLOB sandbox CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/temper/process/sandbox/*.cpp)
  add_executable(temper_sandbox ${sandbox})
  target_include_directories(temper_sandbox PRIVATE ${CMAKE_SOURCE_DIR})
  set_target_properties(temper_sandbox PROPERTIES OUTPUT_NAME temper-sandbox RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR})
  add_dependencies(temper_core temper_sandbox)
endfunction()

function(temper_folders)
  file(CONFIGURE OUTPUT ${CMAKE_BINARY_DIR}/pch.cpp CONTENT "")  # written once: with it everything would be compiled again
  # One precompiled header for all: ATen takes 35 s to parse, and every target that had its own would pay it again.
  # Autograd's headers stay out: every file would instantiate their templates, and few need them.
  add_library(temper_pch OBJECT ${CMAKE_BINARY_DIR}/pch.cpp)
  target_link_libraries(temper_pch PRIVATE temper_torch)
  target_include_directories(temper_pch PRIVATE ${CMAKE_SOURCE_DIR})
  target_precompile_headers(temper_pch PRIVATE
    <ATen/ATen.h>
    <algorithm> <cstdint> <functional> <map> <memory> <optional> <string> <string_view> <unordered_map> <vector>)
  target_compile_options(temper_pch PRIVATE -Winvalid-pch)

  file(GLOB_RECURSE kernels CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/temper/ops/native/kernels/*.cpp)
  add_library(temper_kernels OBJECT ${kernels})
  target_include_directories(temper_kernels PUBLIC ${CMAKE_SOURCE_DIR})
  target_link_libraries(temper_kernels PUBLIC PkgConfig::HWY)
  # Without errno and traps the compiler turns the scalar arithmetic of the kernels into vectors; no result changes.
  target_compile_options(temper_kernels PRIVATE -O3 -fno-math-errno -fno-trapping-math)
  # Some files have instructions that are called only where the processor has them.
  include(CheckCXXCompilerFlag)
  check_cxx_compiler_flag(-mavx512bf16 TEMPER_AVX512_BF16)
  if(TEMPER_AVX512_BF16)
    set_source_files_properties(${CMAKE_SOURCE_DIR}/temper/ops/native/kernels/bfloat16/bfloat16_dot_avx512.cpp PROPERTIES
      COMPILE_OPTIONS "-mavx512f;-mavx512bw;-mavx512vl;-mavx512bf16;-Wno-uninitialized;-Wno-maybe-uninitialized")  # in GCC's own header
    target_compile_definitions(temper_kernels PRIVATE TEMPER_AVX512_BF16)
  endif()
  check_cxx_compiler_flag(-mamx-bf16 TEMPER_AMX)
  if(TEMPER_AMX)
    set_source_files_properties(${CMAKE_SOURCE_DIR}/temper/ops/native/kernels/bfloat16/bfloat16_tiles_amx.cpp PROPERTIES
      COMPILE_OPTIONS "-mavx512f;-mavx512bw;-mamx-tile;-mamx-bf16;-Wno-uninitialized;-Wno-maybe-uninitialized")  # in GCC's own header
    target_compile_definitions(temper_kernels PRIVATE TEMPER_AMX)
  endif()
  # Products in integers: a file for each kind of instructions, empty where the compiler does not know them.
  function(temper_instructions file)
    string(REPLACE ";" " " flags "${ARGN}")
    check_cxx_compiler_flag("${flags}" TEMPER_FLAGS_${file})
    if(TEMPER_FLAGS_${file})
      set_source_files_properties(${CMAKE_SOURCE_DIR}/temper/ops/native/kernels/integer/${file}.cpp PROPERTIES
        COMPILE_OPTIONS "${ARGN};-Wno-uninitialized;-Wno-maybe-uninitialized")  # in GCC's own header
    endif()
  endfunction()
  temper_instructions(avx2 -mavx2)
  temper_instructions(avx_vnni -mavx2 -mavxvnni)
  temper_instructions(neon_dot -march=armv8.2-a+dotprod)
  temper_instructions(avx512 -mavx512f -mavx512bw -mavx512vl)
  temper_instructions(avx512_vnni -mavx512f -mavx512bw -mavx512vl -mavx512vnni)

  temper_sources(sources cold ${ARGN})
  temper_cold_library(temper_cold ${cold})
  temper_unity(temper_cold MIX)
  target_precompile_headers(temper_cold REUSE_FROM temper_pch)
  target_compile_options(temper_cold PRIVATE -Winvalid-pch)
  target_link_libraries(temper_cold PRIVATE temper_core temper_grammar temper_torch PkgConfig::XXHASH PkgConfig::ZSTD)
  add_library(temper SHARED ${sources} $<TARGET_OBJECTS:temper_cold> $<TARGET_OBJECTS:temper_kernels>)
  target_precompile_headers(temper REUSE_FROM temper_pch)
  target_compile_options(temper PRIVATE -Winvalid-pch)
  target_link_libraries(temper PUBLIC temper_core temper_grammar $<BUILD_INTERFACE:temper_torch>
    PRIVATE PkgConfig::HWY PkgConfig::XXHASH PkgConfig::ZSTD ZLIB::ZLIB ${CMAKE_DL_LIBS})
  if(GLOO_INCLUDE)
    target_include_directories(temper SYSTEM PRIVATE ${GLOO_INCLUDE})
  endif()
  # It defines a macro before c10d's headers.
  set_source_files_properties(${CMAKE_SOURCE_DIR}/temper/dist/gloo.cpp PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
  temper_unity(temper MIX)
  set_target_properties(temper PROPERTIES INSTALL_RPATH "$ORIGIN;${TORCH_LIB_DIR}")
endfunction()

function(temper_program)
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/temper/cli/*.cpp)
  list(FILTER sources EXCLUDE REGEX "/main.cpp$")
  # The lists of other trainers' keys become a source file.
  file(GLOB lists CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/temper/cli/synonyms/peers/*.txt)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${lists})
  set(TEMPER_PEERS)
  foreach(list ${lists})
    get_filename_component(peer ${list} NAME_WE)
    file(READ ${list} keys)
    string(APPEND TEMPER_PEERS "      {\"${peer}\", R\"(${keys})\"},\n")
  endforeach()
  configure_file(${CMAKE_SOURCE_DIR}/temper/cli/synonyms/peers.cpp.in ${CMAKE_BINARY_DIR}/peers.cpp @ONLY)
  list(APPEND sources ${CMAKE_BINARY_DIR}/peers.cpp)
  # The verbs as a library, so that the tests can call them; the program is main.cpp alone.
  add_library(temper_cli STATIC ${sources})
  target_precompile_headers(temper_cli REUSE_FROM temper_pch)
  target_link_libraries(temper_cli PUBLIC temper)
  target_compile_options(temper_cli PRIVATE $<$<CONFIG:Release>:-O1>)
  temper_unity(temper_cli BYTES 180000)
  add_executable(temper_main ${CMAKE_SOURCE_DIR}/temper/cli/main.cpp)
  target_precompile_headers(temper_main REUSE_FROM temper_pch)
  set_target_properties(temper_main PROPERTIES OUTPUT_NAME temper RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}
    INSTALL_RPATH "$ORIGIN/../lib;${TORCH_LIB_DIR}")
  if(JEMALLOC AND NOT TEMPER_SANITIZE)
    target_link_libraries(temper_main PRIVATE -Wl,--no-as-needed ${JEMALLOC} -Wl,--as-needed)
  endif()
  target_link_libraries(temper_main PRIVATE temper_cli)
endfunction()
