# The program from outside, as a user types it. `make test` runs the scripts whose head says so; the others, with the
# label `long`, take most of the time of all tests: `make test-long`.
file(GLOB scripts CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/e2e/*_test.sh)
foreach(script ${scripts})
  get_filename_component(name ${script} NAME_WE)
  add_test(NAME e2e/${name} COMMAND bash ${script} $<TARGET_FILE:temper_main>)
  set_tests_properties(e2e/${name} PROPERTIES TIMEOUT ${TEMPER_TEST_TIMEOUT} ENVIRONMENT "${TEMPER_TEST_ENVIRONMENT}")
  file(STRINGS ${script} quick REGEX "^# Part of `make test`[.]$" LIMIT_COUNT 1)
  if(NOT quick)
    set_tests_properties(e2e/${name} PROPERTIES LABELS long)
  endif()
endforeach()
# Programs that link an installed Temper (with a sanitizer they would need its flags).
if(NOT TEMPER_SANITIZE)
  add_test(NAME install/examples COMMAND bash ${CMAKE_SOURCE_DIR}/tests/install/examples.sh ${CMAKE_BINARY_DIR} ${CMAKE_COMMAND})
  set_tests_properties(install/examples PROPERTIES LABELS long TIMEOUT ${TEMPER_TEST_TIMEOUT} ENVIRONMENT "${TEMPER_TEST_ENVIRONMENT}")
  # `make test-packages`: it takes a minute and needs pip's index, so `make test` does without.
  add_test(NAME install/packages CONFIGURATIONS packages
    COMMAND bash ${CMAKE_SOURCE_DIR}/tests/install/packages.sh ${CMAKE_BINARY_DIR})
  set_tests_properties(install/packages PROPERTIES TIMEOUT 900 SKIP_RETURN_CODE 77 ENVIRONMENT "${TEMPER_TEST_ENVIRONMENT}")
endif()
# It waits for servers that come back, and for those that do not.
set_tests_properties(e2e/remote_test PROPERTIES TIMEOUT 1200)
# Hundreds of clients, and requests that are as slow as the limits allow.
set_tests_properties(e2e/hostile_test PROPERTIES TIMEOUT 1200)
