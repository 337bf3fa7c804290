# temper_unity(TARGET [BYTES]): the sources of a target, in the order of their paths, are compiled in groups of BYTES at
# most (TEMPER_UNITY_BYTES) as one file each, which reads their headers once. A name in an unnamed namespace must be
# unique within its folder, and among the folders whose namespace is `temper` itself.
# tools/check_sources.sh compiles every file by itself, as unity and the precompiled header hide a missing include.
option(TEMPER_UNITY "Compile several files as one: quicker as a whole, slower after an edit" ${TEMPER_UNITY_DEFAULT})
set(TEMPER_UNITY_BYTES 250000 CACHE STRING "Source that is compiled as one file, at most")

if(TEMPER_UNITY)
  # A class with a member of an unnamed namespace is fine in a source; GCC takes what a unity file includes for headers.
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
    # Within the source tree: its own directory may be named "temper", too.
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
