# Unity builds. temper_unity(TARGET [BYTES number] [MIX]) joins the target's sources into files of at most BYTES bytes
# (TEMPER_UNITY_BYTES), so that their headers are read once per file. A file holds sources of one folder of temper/; with
# MIX of several, each of which has a namespace of its own. A name in an unnamed namespace must be unique within its
# folder. tools/check_sources.sh compiles every file by itself, as unity builds and the precompiled header hide a missing
# include.
option(TEMPER_UNITY "Compile several files as one: faster full builds, slower rebuilds after an edit" ${TEMPER_UNITY_DEFAULT})
set(TEMPER_UNITY_BYTES 250000 CACHE STRING "Maximum bytes of source in one unity file")

if(TEMPER_UNITY)
  # A class in a source file may have a member whose type is in an unnamed namespace, but GCC warns about it in included
  # files, and a unity file includes its sources.
  add_compile_options(-Wno-subobject-linkage)
endif()

function(temper_unity target)
  if(NOT TEMPER_UNITY)
    return()
  endif()
  cmake_parse_arguments(PARSE_ARGV 1 unity "MIX" "BYTES" "")
  set(limit ${TEMPER_UNITY_BYTES})
  if(unity_BYTES)
    set(limit ${unity_BYTES})
  endif()
  get_target_property(sources ${target} SOURCES)
  list(SORT sources)
  set(number 0)
  set(bytes 0)
  set(folder)
  foreach(source ${sources})
    get_filename_component(source ${source} ABSOLUTE)
    get_property(own SOURCE ${source} PROPERTY SKIP_UNITY_BUILD_INCLUSION)
    # Match the path inside the source tree, because the tree's own directory may be named "temper", too.
    file(RELATIVE_PATH inside ${CMAKE_SOURCE_DIR} ${source})
    if(own OR NOT inside MATCHES "^(temper|tests)/([a-z_]+)/.*[.]cpp$")
      continue()
    endif()
    set(last ${folder})
    set(folder ${CMAKE_MATCH_2})
    file(SIZE ${source} size)
    math(EXPR bytes "${bytes} + ${size}")
    if(bytes GREATER limit OR (last AND NOT unity_MIX AND NOT folder STREQUAL last))
      math(EXPR number "${number} + 1")
      set(bytes ${size})
    endif()
    set_source_files_properties(${source} PROPERTIES UNITY_GROUP "${number}")
  endforeach()
  set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_MODE GROUP)
endfunction()
