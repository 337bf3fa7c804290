# libtemper_grammar: what completions may look like (folder grammar). libtemper_xgrammar: the plugin with XGrammar,
# whose sources tools/setup.sh brings into .deps/xgrammar; it lies beside libtemper_grammar, which loads it at the first
# grammar. Where the sources are missing, asking for a grammar is an error that says so.
set(XGRAMMAR_ROOT "${CMAKE_SOURCE_DIR}/.deps/xgrammar" CACHE PATH "XGrammar's source package, unpacked")

function(temper_grammar_library)
  temper_glob(sources grammar)
  add_library(temper_grammar SHARED ${sources})
  target_include_directories(temper_grammar PUBLIC $<BUILD_INTERFACE:${CMAKE_SOURCE_DIR}>)
  target_link_libraries(temper_grammar PUBLIC temper_core)
  temper_unity(temper_grammar)
  set_target_properties(temper_grammar PROPERTIES INSTALL_RPATH "$ORIGIN")
  if(NOT EXISTS ${XGRAMMAR_ROOT}/include/xgrammar/xgrammar.h)
    message(STATUS "Grammars are off: no sources of XGrammar (tools/setup.sh brings them)")
    return()
  endif()
  file(GLOB_RECURSE xgrammar ${XGRAMMAR_ROOT}/cpp/*.cc)
  list(FILTER xgrammar EXCLUDE REGEX "/tvm_ffi/")
  file(GLOB plugin CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/temper/grammar/xgrammar/*.cpp)
  add_library(xgrammar OBJECT ${xgrammar})
  target_include_directories(xgrammar SYSTEM PUBLIC ${XGRAMMAR_ROOT}/include ${XGRAMMAR_ROOT}/cpp
    ${XGRAMMAR_ROOT}/3rdparty/picojson ${XGRAMMAR_ROOT}/3rdparty/dlpack/include)
  # Errors and warnings come to grammar/xgrammar/compiler.cpp.
  target_compile_definitions(xgrammar PUBLIC XGRAMMAR_LOG_CUSTOMIZE=1 XGRAMMAR_ENABLE_CPPTRACE=0 XGRAMMAR_ENABLE_INTERNAL_CHECK=0)
  target_compile_options(xgrammar PRIVATE -w -g0)
  # Several files at once; this one defines a name of another again.
  set_source_files_properties(${XGRAMMAR_ROOT}/cpp/json_schema_converter.cc PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
  set_target_properties(xgrammar PROPERTIES UNITY_BUILD ${TEMPER_UNITY} UNITY_BUILD_BATCH_SIZE 7)
  add_library(temper_xgrammar SHARED ${plugin} $<TARGET_OBJECTS:xgrammar>)
  target_include_directories(temper_xgrammar PRIVATE ${CMAKE_SOURCE_DIR})
  target_link_libraries(temper_xgrammar PRIVATE xgrammar)
  set_target_properties(xgrammar temper_xgrammar PROPERTIES CXX_VISIBILITY_PRESET hidden VISIBILITY_INLINES_HIDDEN ON)
  target_link_libraries(temper_xgrammar PRIVATE Threads::Threads)
endfunction()
