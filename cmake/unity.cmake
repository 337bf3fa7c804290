# Unity builds. temper_unity(TARGET [BYTES]) joins the target's sources, in the order of their paths, into files of at
# most BYTES of source (default: TEMPER_UNITY_BYTES), so that shared headers are compiled once per file. Names in
# unnamed namespaces must be unique within a folder, and among the folders whose namespace is `temper` itself.
# Unity builds and precompiled headers hide missing includes: tools/check_sources.sh compiles every file by itself.
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
  set(limit ${TEMPER_UNITY_BYTES})
  if(ARGC GREATER 1)
    set(limit ${ARGV1})
  endif()
  get_target_property(sources ${target} SOURCES)
  list(SORT sources)
  set(number 0)
  set(bytes 0)
  foreach(source ${sources})
    get_filename_component(source ${source} ABSOLUTE)
    get_property(own SOURCE ${source} PROPERTY SKIP_UNITY_BUILD_INCLUSION)
    # Match the path inside the source tree, because the tree's own directory may be named "temper", too.
    file(RELATIVE_PATH inside ${CMAKE_SOURCE_DIR} ${source})
    if(own OR NOT inside MATCHES "^(temper|tests)/.*[.]cpp$")
      continue()
    endif()
    file(SIZE ${source} size)
    math(EXPR bytes "${bytes} + ${size}")
    if(bytes GREATER limit)
      math(EXPR number "${number} + 1")
      set(bytes ${size})
    endif()
    set_source_files_properties(${source} PROPERTIES UNITY_GROUP "${number}")
  endforeach()
  set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_MODE GROUP)
endfunction()
